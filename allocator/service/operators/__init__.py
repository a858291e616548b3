"""The gRPC service for operators: questions about users, and commands that change users."""
