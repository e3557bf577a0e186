"""Keys of other systems' YAML files that look as if they did something."""

IGNORED_BY_THE_REFERENCE = {
    "flash_attn": "attn_implementation",
    "dataset_dir": "put the directory into file_name",
    "interleave_probs": "file_weights",
    "use_topr_loss": "leave it out: nothing ever read it",
    "use_topr_neg_loss_coef": "leave it out: nothing ever read it",
    "postive_loss_coef": "leave it out: nothing ever read it",
    "use_policy_loss_type": "leave it out: nothing ever read it",
    "response_filter_config": "leave it out: nothing ever read it",
    "minibatch_data_iter_num": "leave it out: nothing ever read it",
    "balance_length": "leave it out: nothing ever read it",
    "use_reward_scaling": "leave it out: nothing ever read it",
    "add_len_reward": "leave it out: nothing ever read it",
    "use_reward_norm": "leave it out: nothing ever read it",
    "val_greedy": "set temperature: 0 in the validation section",
    "val_n_sample": "set num_return_sequences in the validation section",
    "mask_type": "leave it out: nothing ever read it",
    "report_length_and_rewards": "leave it out: nothing ever read it",
    "length_profiler_dir": "leave it out: nothing ever read it",
    "l2": "leave it out: nothing ever read it",
    "dirty_data_mask": "leave it out: nothing ever read it",
    "open_feedback_turn": "leave it out: nothing ever read it",
    "use_token_reward": "leave it out: nothing ever read it",
    "dataset_filter": "leave it out: nothing ever read it",
    "adapter_name_or_path": "leave it out: nothing ever read it",
}
"""Keys that ROLL accepts and then ignores, with what to write here instead."""
