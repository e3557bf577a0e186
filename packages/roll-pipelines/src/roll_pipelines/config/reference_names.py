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

MISSING_HERE = {
    "logging_dir": "leave it out: workers' messages reach the driver, and error.txt holds a failure",
    "use_kl_loss": "kl_loss_coef above 0 switches the KL loss on",
    "enable_reference": "leave it out: there is a reference when kl_loss_coef is above 0",
    "use_pg_clip_range": "leave it out: pg_clip_low and pg_clip_high always hold",
    "dual_clip_loss": "dual_clip: 1.4 is what ROLL does with pg_clip 0.2",
    "ipo": "loss: ipo",
    "model_download_type": "leave it out: a hub name is fetched from where HF_ENDPOINT points",
    "offload_nccl": "leave it out: nothing depends on it",
    "val_batch_size": "leave it out: all held-out rows are scored",
    "profiler_output_dir": "telemetry: {spans: file}",
    "otlp_output_dir": "telemetry: {spans: file}",
}
"""Keys that ROLL has and that are not here, with what to write instead."""
