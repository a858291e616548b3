"""Views of users, offers and waiting times: metrics, status page, explanations, recordings."""
