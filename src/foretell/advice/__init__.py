"""What to ask for: sites, offers, requests, job scripts."""
