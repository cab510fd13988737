"""One loop for pre-training, post-training and fine-tuning; optimizer, schedule, and the files it resumes from."""
