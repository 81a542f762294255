"""What the command line and the API ask of a project, each as records: status, problems, history, audits, catalogs, checks."""
