"""Connections of Mesos masters: their gRPC streams, and the election of the one master to serve."""
