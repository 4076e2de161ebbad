"""Training data from stored rollouts.

filter      which rollouts stay: rules, expressions, duplicates, caps, decontamination
rescore     rewards computed anew
convert     rows for SFT and DPO, with the chat templates and tokenizers they need
merging     several run folders as one
stored, trainrows   stored rows and rollouts as a training reads them
"""
