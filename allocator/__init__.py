"""Longshare: long-term fair sharing for Apache Mesos."""
