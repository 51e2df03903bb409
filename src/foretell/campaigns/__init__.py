"""Plans, makes and resumes the runs of an application."""
