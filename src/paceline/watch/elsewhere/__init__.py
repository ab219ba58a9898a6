"""Jobs that another machine runs: submitted, asked after, fetched and stopped."""
