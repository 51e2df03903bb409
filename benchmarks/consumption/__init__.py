"""What distributed training consumes: measured jobs, and how well it is told of families never seen."""
