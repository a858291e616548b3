"""The event loop, which everybody shares: nobody may hold it for long."""
