"""Who used what, and who ordered what, in a database that outlives the service."""
