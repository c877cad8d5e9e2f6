"""What is legal in a playbook and hardly meant: names, results, failures, guards."""
