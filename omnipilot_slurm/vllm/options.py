"""Every option of vLLM's command line, by version: data only, read by grammar.py.

Written by `python tools/vllm_options.py compile WHEELS` from the parsers of the vLLM versions
listed; do not edit. A row is: dest, kind, option strings, versions.
kind: first letter f flag, b flag with a --no- form, e flag with --no- and --disable-/--enable-
forms, t true/false, i int, h int with a suffix, H the same or auto, x float, s text, j JSON,
o JSON object with the keys in KEYS, d JSON object or text, k key=count pairs, m these or JSON,
p Python literal of an object or 0 to 3, q prints and quits; then n: also None; then + one or more
values, ? at most one; then S: only `vllm serve`, N: all but `vllm serve`, A: all but the legacy
server, L: only the legacy server.
versions: ranges of positions in VERSIONS.
"""

# the rows are longer than a line of code
# ruff: noqa: E501

VERSIONS = (
    "0.5.5",
    "0.6.0",
    "0.6.2",
    "0.6.3.post1",
    "0.6.4.post1",
    "0.6.5",
    "0.6.6.post1",
    "0.7.0",
    "0.7.2",
    "0.7.3",
    "0.8.0",
    "0.8.1",
    "0.8.2",
    "0.8.3",
    "0.8.4",
    "0.8.5",
    "0.9.0",
    "0.9.1",
    "0.9.2",
    "0.10.0",
    "0.10.1",
    "0.10.2",
    "0.11.0",
    "0.11.1",
    "0.11.2",
    "0.12.0",
    "0.13.0",
    "0.14.1",
    "0.15.0",
    "0.15.1",
    "0.16.0",
    "0.17.0",
    "0.17.1",
    "0.18.1",
    "0.19.0",
    "0.19.1",
    "0.20.0",
    "0.20.2",
    "0.21.0",
    "0.22.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.26.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)

#: versions whose `vllm serve` refuses to go without its positional model
MODEL_REQUIRED = "0-12"
#: versions whose api_server takes (and ignores) a positional
API_SERVER_POSITIONAL = "19-"

OPTIONS = """\
additional_config d --additional-config 16-
additional_config j --additional-config 9-15
aggregate_engine_logging f --aggregate-engine-logging 23-
all2all_backend s --all2all-backend 27-
all2all_backend sn --all2all-backend 23-26
allow_credentials bA --allow-credentials 19-50
allow_credentials eA --allow-credentials 51-
allow_credentials fA --allow-credentials 0-18
allow_deprecated_quantization b --allow-deprecated-quantization 27-50
allow_deprecated_quantization e --allow-deprecated-quantization 51-
allowed_headers jA --allowed-headers 0-
allowed_local_media_path s --allowed-local-media-path 4-
allowed_media_domains sn+ --allowed-media-domains 22-
allowed_methods jA --allowed-methods 0-
allowed_origins jA --allowed-origins 0-
anthropic_disabled_thinking_effort sA --anthropic-disabled-thinking-effort 49-
api_key sn+A --api-key 20-
api_key snA --api-key 0-19
api_server_count iA --api-server-count,-asc 19-
api_server_count iS --api-server-count,-asc 17-18
async_scheduling b --async-scheduling 19-50
async_scheduling e --async-scheduling 51-
attention_backend s --attention-backend 26
attention_backend sn --attention-backend 27-
attention_config o --attention-config,-ac 26-
aux_output_config o --aux-output-config 49-
block_size i --block-size 0-
calculate_kv_scales b --calculate-kv-scales 15-45
calculate_kv_scales f --calculate-kv-scales 7-14
chat_template snA --chat-template 0-
chat_template_content_format sA --chat-template-content-format 5-
chat_template_text_format s --chat-template-text-format 4
code_revision sn --code-revision 0-
cohere_format sA --cohere-format 45-
cohere_is_reasoning_model bA --cohere-is-reasoning-model 45-50
cohere_is_reasoning_model eA --cohere-is-reasoning-model 51-
collect_detailed_traces s --collect-detailed-traces 0-15
collect_detailed_traces sn+ --collect-detailed-traces 16-
compilation_config o --compilation-config,-O 18-24
compilation_config o --compilation-config,-cc 25-
compilation_config p --compilation-config,-O 5-17
config sA --config 19-
config sS --config 1-18
config_format s --config-format 2-
convert s --convert 20-
cp_kv_cache_interleave_size i --cp-kv-cache-interleave-size 25-
cpu_distributed_timeout_seconds in --cpu-distributed-timeout-seconds 39-
cpu_offload_gb x --cpu-offload-gb 0-
cpu_offload_params s+ --cpu-offload-params 31-
cuda_graph_sizes i+ --cuda-graph-sizes 16-22
cuda_graph_sizes in+ --cuda-graph-sizes 23-25
cudagraph_capture_sizes i+ --cudagraph-capture-sizes 34-
cudagraph_capture_sizes in+ --cudagraph-capture-sizes 23-33
cudagraph_metrics b --cudagraph-metrics 26-50
cudagraph_metrics e --cudagraph-metrics 51-
custom_histogram_buckets jn --custom-histogram-buckets 50-
data_parallel_address s --data-parallel-address,-dpa 16-
data_parallel_backend s --data-parallel-backend,-dpb 17-
data_parallel_external_lb b --data-parallel-external-lb,-dpe 23-50
data_parallel_external_lb e --data-parallel-external-lb,-dpe 51-
data_parallel_hybrid_lb b --data-parallel-hybrid-lb 19-22
data_parallel_hybrid_lb b --data-parallel-hybrid-lb,-dph 23-50
data_parallel_hybrid_lb e --data-parallel-hybrid-lb,-dph 51-
data_parallel_multi_port_external_lb f --data-parallel-multi-port-external-lb,-dpm 39-
data_parallel_rank i --data-parallel-rank,-dpn 18-
data_parallel_rpc_port i --data-parallel-rpc-port,-dpp 16-
data_parallel_size i --data-parallel-size,-dp 13-
data_parallel_size_local i --data-parallel-size-local,-dpl 16-
data_parallel_start_rank i --data-parallel-start-rank,-dpr 19-
data_parallel_start_rank iS --data-parallel-start-rank,-dpr 16-18
data_parallel_supervisor_port iA --data-parallel-supervisor-port 39-
dbo_decode_token_threshold i --dbo-decode-token-threshold 22-
dbo_prefill_token_threshold i --dbo-prefill-token-threshold 22-
dcp_comm_backend s --dcp-comm-backend 33-46
dcp_comm_backend sn --dcp-comm-backend 47-
dcp_kv_cache_interleave_size i --dcp-kv-cache-interleave-size 23-
dcp_q_replicate b --dcp-q-replicate 47-50
dcp_q_replicate e --dcp-q-replicate 51-
decode_context_parallel_size i --decode-context-parallel-size,-dcp 21-
default_chat_template_kwargs jA --default-chat-template-kwargs 27-
default_mm_loras jn --default-mm-loras 19-
device s --device 0-17
device sn --device 18
device_ids s --device-ids 42-
diffusion_config jn --diffusion-config,-dc 42-
disable_access_log_for_endpoints snA --disable-access-log-for-endpoints 30-
disable_async_output_proc f --disable-async-output-proc 1-21
disable_cascade_attn b --disable-cascade-attn 16-50
disable_cascade_attn e --disable-cascade-attn 51-
disable_cascade_attn f --disable-cascade-attn 12-15
disable_chunked_mm_input b --disable-chunked-mm-input 15-50
disable_chunked_mm_input e --disable-chunked-mm-input 51-
disable_chunked_mm_input t? --disable-chunked-mm-input 14
disable_custom_all_reduce b --disable-custom-all-reduce 15-50
disable_custom_all_reduce e --disable-custom-all-reduce 51-
disable_custom_all_reduce f --disable-custom-all-reduce 0-14
disable_fastapi_docs bA --disable-fastapi-docs 19-50
disable_fastapi_docs eA --disable-fastapi-docs 51-
disable_fastapi_docs fA --disable-fastapi-docs 2-18
disable_frontend_multiprocessing bA --disable-frontend-multiprocessing 19-33
disable_frontend_multiprocessing fA --disable-frontend-multiprocessing 0-18
disable_hybrid_kv_cache_manager b --disable-hybrid-kv-cache-manager 17-50
disable_hybrid_kv_cache_manager e --disable-hybrid-kv-cache-manager 51-
disable_log_requests b --disable-log-requests 20-30
disable_log_requests f --disable-log-requests 0-19
disable_log_stats f --disable-log-stats 0-
disable_logprobs_during_spec_decoding t? --disable-logprobs-during-spec-decoding 0-12
disable_mm_preprocessor_cache b --disable-mm-preprocessor-cache 16-19
disable_mm_preprocessor_cache f --disable-mm-preprocessor-cache 6-15,20-25
disable_nccl_for_dp_synchronization b --disable-nccl-for-dp-synchronization 23-50
disable_nccl_for_dp_synchronization e --disable-nccl-for-dp-synchronization 51-
disable_sliding_window b --disable-sliding-window 16-50
disable_sliding_window e --disable-sliding-window 51-
disable_sliding_window f --disable-sliding-window 0-15
disable_uvicorn_access_log bA --disable-uvicorn-access-log 19-50
disable_uvicorn_access_log eA --disable-uvicorn-access-log 51-
disable_uvicorn_access_log fA --disable-uvicorn-access-log 12-18
distributed_executor_backend s --distributed-executor-backend 0-13
distributed_executor_backend sn --distributed-executor-backend 14-
distributed_timeout_seconds in --distributed-timeout-seconds 33-
download_dir sn --download-dir 0-
dp_supervisor_probe_failure_threshold iA --dp-supervisor-probe-failure-threshold 39-
dp_supervisor_probe_interval_s xA --dp-supervisor-probe-interval-s 39-
dp_supervisor_probe_timeout_s xA --dp-supervisor-probe-timeout-s 39-
dp_sync_interval i --dp-sync-interval 48-
dtype s --dtype 0-
ec_manager_config o --ec-manager-config 46-
ec_transfer_config on --ec-transfer-config 23-
elastic_ep_max_dp_size i --elastic-ep-max-dp-size 48-
enable_auto_tool_choice bA --enable-auto-tool-choice 19-50
enable_auto_tool_choice eA --enable-auto-tool-choice 51-
enable_auto_tool_choice fA --enable-auto-tool-choice 1-18
enable_batch_sharded_sampling b --enable-batch-sharded-sampling 47-50
enable_batch_sharded_sampling e --enable-batch-sharded-sampling 51-
enable_bf16x3_router_gemm b --enable-bf16x3-router-gemm 44-47
enable_chunked_prefill b --enable-chunked-prefill 15-50
enable_chunked_prefill e --enable-chunked-prefill 51-
enable_chunked_prefill t? --enable-chunked-prefill 0-14
enable_cumem_allocator b --enable-cumem-allocator 39-50
enable_cumem_allocator e --enable-cumem-allocator 51-
enable_dbo b --enable-dbo 22-50
enable_dbo e --enable-dbo 51-
enable_elastic_ep b --enable-elastic-ep 31-50
enable_elastic_ep e --enable-elastic-ep 51-
enable_ep_weight_filter b --enable-ep-weight-filter 33-50
enable_ep_weight_filter e --enable-ep-weight-filter 51-
enable_eplb b --enable-eplb 18-50
enable_eplb e --enable-eplb 51-
enable_expert_parallel b --enable-expert-parallel 15-26
enable_expert_parallel b --enable-expert-parallel,-ep 27-50
enable_expert_parallel e --enable-expert-parallel,-ep 51-
enable_expert_parallel f --enable-expert-parallel 10-14
enable_fault_tolerance b --enable-fault-tolerance 45-50
enable_fault_tolerance e --enable-fault-tolerance 51-
enable_flash_late_interaction bA --enable-flash-late-interaction 36-50
enable_flash_late_interaction eA --enable-flash-late-interaction 51-
enable_flashinfer_autotune b --enable-flashinfer-autotune 30-50
enable_flashinfer_autotune e --enable-flashinfer-autotune 51-
enable_force_include_usage bA --enable-force-include-usage 19-50
enable_force_include_usage eA --enable-force-include-usage 51-
enable_force_include_usage fA --enable-force-include-usage 18
enable_hc_sp b --enable-hc-sp 50
enable_hc_sp e --enable-hc-sp 51-
enable_layerwise_nvtx_tracing b --enable-layerwise-nvtx-tracing 26-50
enable_layerwise_nvtx_tracing e --enable-layerwise-nvtx-tracing 51-
enable_log_deltas bA --enable-log-deltas 27-50
enable_log_deltas eA --enable-log-deltas 51-
enable_log_outputs bA --enable-log-outputs 20-50
enable_log_outputs eA --enable-log-outputs 51-
enable_log_requests b --enable-log-requests 20-50
enable_log_requests e --enable-log-requests 51-
enable_logging_iteration_details b --enable-logging-iteration-details 27-50
enable_logging_iteration_details e --enable-logging-iteration-details 51-
enable_lora b --enable-lora 15-50
enable_lora e --enable-lora 51-
enable_lora f --enable-lora 0-14
enable_lora_bias b --enable-lora-bias 15-22
enable_lora_bias f --enable-lora-bias 4-14
enable_mamba_cache_stochastic_rounding b --enable-mamba-cache-stochastic-rounding 36-50
enable_mamba_cache_stochastic_rounding e --enable-mamba-cache-stochastic-rounding 51-
enable_mamba_fine_grained_prefix_cache b --enable-mamba-fine-grained-prefix-cache 48
enable_mamba_shared_prefix_checkpoint b --enable-mamba-shared-prefix-checkpoint 49-50
enable_mamba_shared_prefix_checkpoint e --enable-mamba-shared-prefix-checkpoint 51-
enable_mfu_metrics b --enable-mfu-metrics 27-50
enable_mfu_metrics e --enable-mfu-metrics 51-
enable_mixed_moe_lora_format b --enable-mixed-moe-lora-format 39-50
enable_mixed_moe_lora_format e --enable-mixed-moe-lora-format 51-
enable_mm_embeds b --enable-mm-embeds 23-50
enable_mm_embeds e --enable-mm-embeds 51-
enable_moe_shared_loras b --enable-moe-shared-loras 44-50
enable_moe_shared_loras e --enable-moe-shared-loras 51-
enable_multimodal_encoder_data_parallel b --enable-multimodal-encoder-data-parallel 17-20
enable_multimodal_encoder_data_parallel f --enable-multimodal-encoder-data-parallel 21-25
enable_nccl_comm_suspend b --enable-nccl-comm-suspend 48-50
enable_nccl_comm_suspend e --enable-nccl-comm-suspend 51-
enable_offline_docs bA --enable-offline-docs 27-50
enable_offline_docs eA --enable-offline-docs 51-
enable_per_request_metrics bA --enable-per-request-metrics 43-50
enable_per_request_metrics eA --enable-per-request-metrics 51-
enable_prefix_caching b --enable-prefix-caching 5-50
enable_prefix_caching e --enable-prefix-caching 51-
enable_prefix_caching f --enable-prefix-caching 0-4
enable_prompt_adapter b --enable-prompt-adapter 15-18
enable_prompt_adapter f --enable-prompt-adapter 0-14,19-20
enable_prompt_embeds b --enable-prompt-embeds 16-50
enable_prompt_embeds e --enable-prompt-embeds 51-
enable_prompt_tokens_details bA --enable-prompt-tokens-details 19-50
enable_prompt_tokens_details eA --enable-prompt-tokens-details 51-
enable_prompt_tokens_details fA --enable-prompt-tokens-details 4-18
enable_reasoning b --enable-reasoning 16-18
enable_reasoning f --enable-reasoning 10-15
enable_reasoning fA --enable-reasoning 8-9
enable_request_id_headers bA --enable-request-id-headers 19-50
enable_request_id_headers eA --enable-request-id-headers 51-
enable_request_id_headers fA --enable-request-id-headers 6-18
enable_return_routed_experts b --enable-return-routed-experts 27-50
enable_return_routed_experts e --enable-return-routed-experts 51-
enable_scale_out bA --enable-scale-out 48-50
enable_scale_out eA --enable-scale-out 51-
enable_server_load_tracking bA --enable-server-load-tracking 19-50
enable_server_load_tracking eA --enable-server-load-tracking 51-
enable_server_load_tracking fA --enable-server-load-tracking 10-18
enable_shm_tensor_arena b --enable-shm-tensor-arena 50
enable_shm_tensor_arena e --enable-shm-tensor-arena 51-
enable_sleep_mode b --enable-sleep-mode 16-50
enable_sleep_mode e --enable-sleep-mode 51-
enable_sleep_mode f --enable-sleep-mode 7-15
enable_ssl_refresh bA --enable-ssl-refresh 19-50
enable_ssl_refresh eA --enable-ssl-refresh 51-
enable_ssl_refresh f --enable-ssl-refresh 10-18
enable_ssl_refresh fL --enable-ssl-refresh 19-42
enable_tokenizer_info_endpoint bA --enable-tokenizer-info-endpoint 19-50
enable_tokenizer_info_endpoint eA --enable-tokenizer-info-endpoint 51-
enable_tower_connector_lora b --enable-tower-connector-lora 27-50
enable_tower_connector_lora e --enable-tower-connector-lora 51-
enable_trace_replay b --enable-trace-replay 47-50
enable_trace_replay e --enable-trace-replay 51-
enforce_eager b --enforce-eager 16-50
enforce_eager e --enforce-eager 51-
enforce_eager f --enforce-eager 0-15
engine_use_ray f --engine-use-ray 0-1
engram_config on --engram-config 48-
eplb_config o --eplb-config 21-
eplb_log_balancedness b --eplb-log-balancedness 18-24
eplb_step_interval i --eplb-step-interval 18-24
eplb_window_size i --eplb-window-size 18-24
exclude_tools_when_tool_choice_none bA --exclude-tools-when-tool-choice-none 20-50
exclude_tools_when_tool_choice_none eA --exclude-tools-when-tool-choice-none 51-
expand_tools_even_if_tool_choice_none fA --expand-tools-even-if-tool-choice-none 18
expert_placement_strategy s --expert-placement-strategy 22-
fail_on_environ_validation b --fail-on-environ-validation 31-50
fail_on_environ_validation e --fail-on-environ-validation 51-
fault_tolerance_config o --fault-tolerance-config 45-
fingerprint_mode sA --fingerprint-mode 38-
fingerprint_value snA --fingerprint-value 38-
fully_sharded_loras b --fully-sharded-loras 15-50
fully_sharded_loras e --fully-sharded-loras 51-
fully_sharded_loras f --fully-sharded-loras 0-14
gdn_prefill_backend s --gdn-prefill-backend 33-
generation_config s --generation-config 16-
generation_config sn --generation-config 6-15
gpu_memory_utilization x --gpu-memory-utilization 0-48
gpu_memory_utilization x --gpu-memory-utilization,--device-memory-utilization 49-
grpc fA --grpc 36-
grpc fS --grpc 33-35
grpc_port inA --grpc-port 50-
guided_decoding_backend s --guided-decoding-backend 0-24
guided_decoding_disable_additional_properties b --guided-decoding-disable-additional-properties 16-21
guided_decoding_disable_additional_properties s --guided-decoding-disable-additional-properties 22-24
guided_decoding_disable_any_whitespace b --guided-decoding-disable-any-whitespace 16-21
guided_decoding_disable_any_whitespace s --guided-decoding-disable-any-whitespace 22-24
guided_decoding_disable_fallback b --guided-decoding-disable-fallback 16-21
guided_decoding_disable_fallback s --guided-decoding-disable-fallback 22-24
h11_max_header_count iA --h11-max-header-count 21-
h11_max_incomplete_event_size iA --h11-max-incomplete-event-size 21-
headless fA --headless 19-
headless fS --headless 16-18
help q -h,--help 0-
hf_config_path sn --hf-config-path 10-
hf_overrides d --hf-overrides 16-
hf_overrides j --hf-overrides 4-15
hf_token s? --hf-token 14-
host sL --host 0-8,10-42
host snA --host 0-
ignore_patterns s --ignore-patterns 0-15
ignore_patterns s+ --ignore-patterns 23-
ignore_patterns sn+ --ignore-patterns 16-22
interleave_mm_strings b --interleave-mm-strings 19-50
interleave_mm_strings e --interleave-mm-strings 51-
io_processor_plugin sn --io-processor-plugin 21-
ir_op_priority o --ir-op-priority 36-
jit_monitor_mode s --jit-monitor-mode 43-
jit_monitor_verbose b --jit-monitor-verbose 42-50
jit_monitor_verbose e --jit-monitor-verbose 51-
kda_decode_backend s --kda-decode-backend 48-
kda_prefill_backend s --kda-prefill-backend 45-
kernel_config o --kernel-config 30-
kv_cache_dtype s --kv-cache-dtype 0-
kv_cache_dtype_skip_layers s+ --kv-cache-dtype-skip-layers 34-
kv_cache_memory_bytes hn --kv-cache-memory-bytes 21-
kv_cache_metrics b --kv-cache-metrics 25-50
kv_cache_metrics e --kv-cache-metrics 51-
kv_cache_metrics_sample x --kv-cache-metrics-sample 25-
kv_events_config on --kv-events-config 16-
kv_offloading_backend s --kv-offloading-backend 27-
kv_offloading_backend sn --kv-offloading-backend 23-26
kv_offloading_size xn --kv-offloading-size 23-
kv_sharing_fast_prefill b --kv-sharing-fast-prefill 20-50
kv_sharing_fast_prefill e --kv-sharing-fast-prefill 51-
kv_transfer_config j --kv-transfer-config 5-15
kv_transfer_config on --kv-transfer-config 16-
language_model_only b --language-model-only 31-50
language_model_only e --language-model-only 51-
limit_mm_per_prompt j --limit-mm-per-prompt 19-
limit_mm_per_prompt k --limit-mm-per-prompt 0-14
limit_mm_per_prompt m --limit-mm-per-prompt 16-18
limit_mm_per_prompt mn --limit-mm-per-prompt 15
linear_backend s --linear-backend 39-
load_format s --load-format 0-
log_config_file s --log-config-file 49-
log_config_file sA --log-config-file 17-18
log_config_file snA --log-config-file 19-48
log_error_stack bA --log-error-stack 21-50
log_error_stack eA --log-error-stack 51-
log_level s --log-level 49-
log_level sL --log-level 0-8,10-42
logging_config o --logging-config 49-
logits_processor_pattern sn --logits-processor-pattern 5-30
logits_processors sn+ --logits-processors 20-
logprobs_mode s --logprobs-mode 19-
long_lora_scaling_factors sn --long-lora-scaling-factors 0-14
long_lora_scaling_factors xn+ --long-lora-scaling-factors 15-18
long_prefill_token_threshold i --long-prefill-token-threshold 15-
long_prefill_token_threshold x --long-prefill-token-threshold 9-14
long_prefill_token_threshold_adaptive b --long-prefill-token-threshold-adaptive 49-50
long_prefill_token_threshold_adaptive e --long-prefill-token-threshold-adaptive 51-
lora_dtype s --lora-dtype 0-
lora_extra_vocab_size i --lora-extra-vocab-size 0-24
lora_modules sn+A --lora-modules 0-
lora_target_modules sn+ --lora-target-modules 34-
mamba_backend s --mamba-backend 36-
mamba_block_size in --mamba-block-size 23-
mamba_cache_dtype s --mamba-cache-dtype 20-
mamba_cache_mode s --mamba-cache-mode 28-
mamba_cache_philox_rounds i --mamba-cache-philox-rounds 36-
mamba_ssm_cache_dtype s --mamba-ssm-cache-dtype 20-
mamba_ssu_algorithm sn --mamba-ssu-algorithm 45-
master_addr s --master-addr 23-
master_port i --master-port 23-
max_context_len_to_capture i --max-context-len-to-capture 0-3
max_cpu_loras i --max-cpu-loras 0-14
max_cpu_loras in --max-cpu-loras 15-
max_cudagraph_capture_size i --max-cudagraph-capture-size 30-
max_cudagraph_capture_size in --max-cudagraph-capture-size 23-29
max_log_len iA --max-log-len 0-18
max_log_len inA --max-log-len 19-
max_logprobs i --max-logprobs 0-
max_long_partial_prefills i --max-long-partial-prefills 9-44
max_lora_cls_labels in --max-lora-cls-labels 49-
max_lora_rank i --max-lora-rank 0-
max_loras i --max-loras 0-
max_model_len H --max-model-len 27-
max_model_len h --max-model-len 14-26
max_model_len i --max-model-len 0-13
max_num_active_seqs in --max-num-active-seqs 49-
max_num_batched_tokens h --max-num-batched-tokens 17-
max_num_batched_tokens i --max-num-batched-tokens 0-16
max_num_partial_prefills i --max-num-partial-prefills 9-44
max_num_queued_reqs in --max-num-queued-reqs 47-
max_num_queued_tokens hn --max-num-queued-tokens 47-
max_num_scheduled_tokens hn --max-num-scheduled-tokens 44-
max_num_seqs i --max-num-seqs 0-
max_parallel_loading_workers i --max-parallel-loading-workers 0-13
max_parallel_loading_workers in --max-parallel-loading-workers 15-
max_parallel_loading_workers sn --max-parallel-loading-workers 14
max_prompt_adapter_token i --max-prompt-adapter-token 0-18
max_prompt_adapters i --max-prompt-adapters 0-18
max_seq_len_to_capture i --max-seq-len-to-capture 0-21
media_io_kwargs j --media-io-kwargs 19-
media_io_kwargs m --media-io-kwargs 18
middleware sA --middleware 19-
middleware snA --middleware 0-18
mm_cache_preprocessor f --mm-cache-preprocessor 5
mm_device_do_normalize b --mm-device-do-normalize 46-50
mm_device_do_normalize e --mm-device-do-normalize 51-
mm_encoder_attn_backend s --mm-encoder-attn-backend 25-26
mm_encoder_attn_backend sn --mm-encoder-attn-backend 23-24,27-
mm_encoder_attn_dtype sn --mm-encoder-attn-dtype 38-
mm_encoder_fp8_scale_path sn --mm-encoder-fp8-scale-path 38-
mm_encoder_fp8_scale_save_margin x --mm-encoder-fp8-scale-save-margin 38-
mm_encoder_fp8_scale_save_path sn --mm-encoder-fp8-scale-save-path 38-
mm_encoder_only b --mm-encoder-only 28-50
mm_encoder_only e --mm-encoder-only 51-
mm_encoder_tp_mode s --mm-encoder-tp-mode 21-
mm_hasher_algorithm s --mm-hasher-algorithm 45-
mm_ipc_gpu_memory_gb x --mm-ipc-gpu-memory-gb 43-
mm_processor_cache_gb i --mm-processor-cache-gb 20
mm_processor_cache_gb x --mm-processor-cache-gb 21-
mm_processor_cache_type s --mm-processor-cache-type 22-
mm_processor_device s --mm-processor-device 46-
mm_processor_kwargs j --mm-processor-kwargs 2-15
mm_processor_kwargs jn --mm-processor-kwargs 19-
mm_processor_kwargs mn --mm-processor-kwargs 16-18
mm_shm_cache_max_object_size_mb i --mm-shm-cache-max-object-size-mb 22-
mm_tensor_ipc s --mm-tensor-ipc 34-
model s --model 0-15,17-
model sN --model 16
model_class_overrides j --model-class-overrides 43-
model_impl s --model-impl 8-
model_loader_extra_config d --model-loader-extra-config 17-
model_loader_extra_config m --model-loader-extra-config 16
model_loader_extra_config mn --model-loader-extra-config 15
model_loader_extra_config sn --model-loader-extra-config 0-14
moe_backend s --moe-backend 31-
monokernel e --monokernel 51-
multi_step_stream_outputs b --multi-step-stream-outputs 15-19
multi_step_stream_outputs f --multi-step-stream-outputs 2
multi_step_stream_outputs t? --multi-step-stream-outputs 3-14
ngram_prompt_lookup_max i --ngram-prompt-lookup-max 0-12
ngram_prompt_lookup_min i --ngram-prompt-lookup-min 0-12
nnodes i --nnodes,-n 23-
node_rank i --node-rank,-r 23-
num_gpu_blocks_override i --num-gpu-blocks-override 0-14
num_gpu_blocks_override in --num-gpu-blocks-override 15-
num_lookahead_slots i --num-lookahead-slots 0-24
num_redundant_experts i --num-redundant-experts 18-24
num_scheduler_steps i --num-scheduler-steps 0-19
num_speculative_tokens i --num-speculative-tokens 0-12
numa_bind b --numa-bind 36-50
numa_bind e --numa-bind 51-
numa_bind_cpus sn+ --numa-bind-cpus 36-
numa_bind_nodes in+ --numa-bind-nodes 36-
offload_backend s --offload-backend 31-
offload_group_size i --offload-group-size 31-
offload_num_in_group i --offload-num-in-group 31-
offload_params s+ --offload-params 31-
offload_prefetch_step i --offload-prefetch-step 31-
optimization_level s --optimization-level 25-
otlp_traces_endpoint s --otlp-traces-endpoint 0-15
otlp_traces_endpoint sn --otlp-traces-endpoint 16-
override_attention_dtype sn --override-attention-dtype 18-45
override_generation_config j --override-generation-config 8-15,19-
override_generation_config m --override-generation-config 16-18
override_neuron_config j --override-neuron-config 3-15,19-20
override_neuron_config m --override-neuron-config 16-18
override_neuron_config s --override-neuron-config 1-2
override_pooler_config dn --override-pooler-config 16-21
override_pooler_config j --override-pooler-config 4-15
override_pooler_config on --override-pooler-config 22-24
per_request_spec_decode_metrics s --per-request-spec-decode-metrics 47-
performance_mode s --performance-mode 31-
pipeline_parallel_size i --pipeline-parallel-size,-pp 0-
pooler_config on --pooler-config 22-
port i --port 0-8,10-42
port iA --port 9,43-
preemption_mode s --preemption-mode 0-14
preemption_mode sn --preemption-mode 15-21
prefill_context_parallel_size i --prefill-context-parallel-size,-pcp 25-
prefill_schedule_interval i --prefill-schedule-interval 42-
prefix_cache_retention_interval in --prefix-cache-retention-interval 47-
prefix_caching_hash_algo s --prefix-caching-hash-algo 13-
prefix_match_unit in --prefix-match-unit 44-
profiler_config o --profiler-config 26-
prompt_adapters sn+A --prompt-adapters 0-18
pt_load_map_location d --pt-load-map-location 16-
qlora_adapter_name_or_path s --qlora-adapter-name-or-path 0-18
quantization sn --quantization,-q 0-
quantization_config on --quantization-config 39-
quantization_param_path sn --quantization-param-path 0-6
ray_workers_use_nsight b --ray-workers-use-nsight 15-50
ray_workers_use_nsight e --ray-workers-use-nsight 51-
ray_workers_use_nsight f --ray-workers-use-nsight 0-14
reasoning_config on --reasoning-config 34-
reasoning_effort_map jA --reasoning-effort-map 51-
reasoning_parser s --reasoning-parser 10-14,16-
reasoning_parser sA --reasoning-parser 8-9
reasoning_parser sn --reasoning-parser 15
reasoning_parser_plugin s --reasoning-parser-plugin 23-
renderer_num_workers i --renderer-num-workers 34-
replayssm_buffer_len i --replayssm-buffer-len 45-
response_role sA --response-role 19-
response_role snA --response-role 0-18
return_sampling_mask b --return-sampling-mask 46-50
return_sampling_mask e --return-sampling-mask 51-
return_tokens_as_token_ids bA --return-tokens-as-token-ids 19-50
return_tokens_as_token_ids eA --return-tokens-as-token-ids 51-
return_tokens_as_token_ids fA --return-tokens-as-token-ids 0-18
revision sn --revision 0-
root_path sL --root-path 0-8,10-42
root_path snA --root-path 0-
rope_scaling j --rope-scaling 0-15,19-22
rope_scaling m --rope-scaling 16-18
rope_theta x --rope-theta 0-15
rope_theta xn --rope-theta 16-22
runner s --runner 20-
safetensors_load_strategy s --safetensors-load-strategy 21-33
safetensors_load_strategy sn --safetensors-load-strategy 34-
safetensors_prefetch_block_size h --safetensors-prefetch-block-size 38-
safetensors_prefetch_num_threads i --safetensors-prefetch-num-threads 38-
scheduler_cls s --scheduler-cls 9-30
scheduler_cls sn --scheduler-cls 31-
scheduler_delay_factor x --scheduler-delay-factor 0-21
scheduler_reserve_full_isl b --scheduler-reserve-full-isl 34-50
scheduler_reserve_full_isl e --scheduler-reserve-full-isl 51-
scheduling_policy s --scheduling-policy 3-
seed i --seed 0-15,25-
seed in --seed 16-24
served_model_name s+ --served-model-name 0-15
served_model_name sn+ --served-model-name 16-
show_hidden_metrics_for_version s --show-hidden-metrics-for-version 10-15
show_hidden_metrics_for_version sn --show-hidden-metrics-for-version 16-
shutdown_timeout i --shutdown-timeout 33-
skip_mm_profiling b --skip-mm-profiling 20-50
skip_mm_profiling e --skip-mm-profiling 51-
skip_tokenizer_init b --skip-tokenizer-init 16-50
skip_tokenizer_init e --skip-tokenizer-init 51-
skip_tokenizer_init f --skip-tokenizer-init 0-15
sleep_mode_backend s --sleep-mode-backend 51-
sleep_mode_offload_cudagraph b --sleep-mode-offload-cudagraph 50
sleep_mode_offload_cudagraph e --sleep-mode-offload-cudagraph 51-
sleep_preserve_parameter_names s+ --sleep-preserve-parameter-names 49-
sparse_indexer_topk_backend s --sparse-indexer-topk-backend 48-
spec_decoding_acceptance_method s --spec-decoding-acceptance-method 0-12
spec_method sn --spec-method 39-
spec_model sn --spec-model 39-
spec_tokens i --spec-tokens 39-
specialize_active_lora b --specialize-active-lora 30-50
specialize_active_lora e --specialize-active-lora 51-
speculative_config j --speculative-config 13-19
speculative_config jn --speculative-config 20-33
speculative_config jn --speculative-config,-sc 34-
speculative_config sn --speculative-config 12
speculative_disable_by_batch_size i --speculative-disable-by-batch-size 0-12
speculative_disable_mqa_scorer f --speculative-disable-mqa-scorer 3-12
speculative_draft_tensor_parallel_size i --speculative-draft-tensor-parallel-size,-spec-draft-tp 0-12
speculative_max_model_len i --speculative-max-model-len 0-12
speculative_model sn --speculative-model 0-12
speculative_model_quantization sn --speculative-model-quantization 0-12
sse_keep_alive_interval iA --sse-keep-alive-interval 47-
ssl_ca_certs sL --ssl-ca-certs 0-8,10-42
ssl_ca_certs snA --ssl-ca-certs 0-
ssl_cert_reqs i --ssl-cert-reqs 0-8,10-42
ssl_cert_reqs iA --ssl-cert-reqs 9,43-
ssl_certfile sL --ssl-certfile 0-8,10-42
ssl_certfile snA --ssl-certfile 0-
ssl_ciphers snA --ssl-ciphers 28-
ssl_keyfile sL --ssl-keyfile 0-8,10-42
ssl_keyfile snA --ssl-keyfile 0-
stream_interval i --stream-interval 23-
structured_outputs_config o --structured-outputs-config 22-
swa_bounded_replay b --swa-bounded-replay 49-50
swa_bounded_replay e --swa-bounded-replay 51-
swap_space x --swap-space 0-32
task s --task 4-19
task sn --task 20-25
tensor_parallel_size i --tensor-parallel-size,-tp 0-
tokenizer s --tokenizer 16-
tokenizer sn --tokenizer 0-15
tokenizer_mode s --tokenizer-mode 0-
tokenizer_pool_extra_config m --tokenizer-pool-extra-config 16-18
tokenizer_pool_extra_config mn --tokenizer-pool-extra-config 15
tokenizer_pool_extra_config sn --tokenizer-pool-extra-config 0-14
tokenizer_pool_size i --tokenizer-pool-size 0-18
tokenizer_pool_type s --tokenizer-pool-type 0-18
tokenizer_revision sn --tokenizer-revision 0-
tokens_only bA --tokens-only 23-50
tokens_only eA --tokens-only 51-
tool_call_parser sA --tool-call-parser 1-18
tool_call_parser snA --tool-call-parser 19-
tool_parser_plugin sA --tool-parser-plugin 3-
tool_server snA --tool-server 20-
tool_strict_level sA --tool-strict-level 49-
trust_remote_code b --trust-remote-code 16-50
trust_remote_code e --trust-remote-code 51-
trust_remote_code f --trust-remote-code 0-15
trust_request_chat_template bA --trust-request-chat-template 22-50
trust_request_chat_template eA --trust-request-chat-template 51-
trust_request_mm_kwargs bA --trust-request-mm-kwargs 49-50
trust_request_mm_kwargs eA --trust-request-mm-kwargs 51-
typical_acceptance_sampler_posterior_alpha x --typical-acceptance-sampler-posterior-alpha 0-12
typical_acceptance_sampler_posterior_threshold x --typical-acceptance-sampler-posterior-threshold 0-12
ubatch_size i --ubatch-size 27-
uds snA --uds 20-
use_fp64_gumbel b --use-fp64-gumbel 39-50
use_fp64_gumbel e --use-fp64-gumbel 51-
use_gpu_for_pooling_score bA --use-gpu-for-pooling-score 31-32
use_replayssm b --use-replayssm 45-50
use_replayssm e --use-replayssm 51-
use_tqdm_on_load b --use-tqdm-on-load 10-50
use_tqdm_on_load e --use-tqdm-on-load 51-
use_v2_block_manager f --use-v2-block-manager 0-18
uvicorn_log_level sA --uvicorn-log-level 0-
video_pruning_method s --video-pruning-method 45-
video_pruning_rate xn --video-pruning-rate 22-
watchdog_config o --watchdog-config 51-
watermark x --watermark 42-
watermark_config jn --watermark-config 48-
weight_transfer_config on --weight-transfer-config 30-
worker_cls s --worker-cls 5-
worker_extension_cls s --worker-extension-cls 10-
worker_use_ray f --worker-use-ray 0-6
"""

#: dest, then version ranges with the values allowed in them
CHOICES = """\
all2all_backend 23-:allgather_reducescatter|deepep_high_throughput|deepep_low_latency|flashinfer_all2allv|naive|pplx 28-40:mori 33-:flashinfer_nvlink_one_sided|flashinfer_nvlink_two_sided|nixl_ep 41-:mori_high_throughput|mori_low_latency 42-:deepep_v2 49-:moonep
block_size 0:1024|2048|512 0,23-32:256 0,4,6-32:128 0-32:16|32|8 15-32:1 4,6-32:64
chat_template_text_format 4:openai|string
collect_detailed_traces 49-:all|model|worker|~
convert 20-:auto|classify|embed|none 20-29:reward 27-29:mm_encoder_only
dcp_comm_backend 33-:a2a|ag_rs 49-:~
device 0-11:openvino 0-18:auto|cpu|cuda|neuron|tpu|xpu 4-18:hpu
distributed_executor_backend 0-20:mp|ray 7-20:external_launcher|uni
dtype 0-:auto|bfloat16|float|float16|float32|half
expert_placement_strategy 22-:linear|round_robin
fingerprint_mode 38-:custom|full|hash|none
gdn_prefill_backend 33-:flashinfer|triton 39-:cutedsl 50-:aiter_flydsl 51-:sycl
guided_decoding_backend 0-9,15-19,21:lm-format-enforcer 0-9,15-21:outlines 15-21:auto|guidance 5-9,15-21:xgrammar
jit_monitor_mode 43-:error|warn
kda_decode_backend 48-:auto|flashinfer|native|triton
kda_prefill_backend 45-:auto|flashkda|triton 48-:flashinfer|fused
kv_cache_dtype 0-50:auto|fp8|fp8_e4m3|fp8_e5m2 19-50:fp8_inc 22-50:bfloat16 23-50:fp8_ds_mla 33-50:float16 36-50:fp8_per_token_head|int8_per_token_head|nvfp4|turboquant_3bit_nc|turboquant_4bit_nc|turboquant_k3v4_nc|turboquant_k8v4 43-50:int4_per_token_head 46-50:nvfp4_4over6 48-50:nvfp4_ds_mla 50:ultraquant_4bit
kv_offloading_backend 23-:lmcache|native
linear_backend 39-:aiter|auto|conch|cutlass|deep_gemm|emulation|exllama|fbgemm|flashinfer_cudnn|flashinfer_cutlass|flashinfer_trtllm|machete|marlin|torch|triton 42-:flashinfer_b12x|flashinfer_cutedsl 43-:humming|xpu|xpu_woq 46-:b12x
load_format 0-19:auto|bitsandbytes|dummy|gguf|npcache|pt|safetensors|sharded_state|tensorizer 12-19:fastsafetensors 15-19:runai_streamer_sharded 2-19:mistral 6-19:runai_streamer
log_level 49-:CRITICAL|DEBUG|ERROR|INFO|NOTSET|WARNING
logprobs_mode 19-:processed_logits|processed_logprobs|raw_logits|raw_logprobs
lora_dtype 0-22:auto|bfloat16|float16 0-3:float32
lora_extra_vocab_size 23-24:256|512
mamba_cache_dtype 20-:auto|float32 26-:float16 39-:bfloat16
mamba_cache_mode 28-:align|none 28-49:all
mamba_ssm_cache_dtype 20-:auto|float32 26-:float16 39-:bfloat16
mamba_ssu_algorithm 45-:auto|horizontal|simple|vertical 49-:~
max_lora_rank 23-:1|128|16|256|32|320|512|64|8
mm_encoder_attn_dtype 38-:fp8 49-:~
mm_encoder_tp_mode 21-:data|weights
mm_hasher_algorithm 45-:blake3|sha256|sha512
mm_processor_cache_type 22-:lru|shm
mm_processor_device 46-:auto|cpu|cuda
mm_tensor_ipc 34-:direct_rpc|torch_shm
model_impl 21:terratorch 8-21:auto|transformers|vllm
moe_backend 31-:aiter|auto|cutlass|deep_gemm|flashinfer_cutedsl|flashinfer_cutlass|flashinfer_trtllm|marlin|triton 36-:deep_gemm_mega_moe|emulation 38-:humming|triton_unfused 39-:flashinfer_b12x 42-:flydsl 43-:hpc 45-:batched_triton 47-:b12x|flashinfer_moe_ep_mega_deep_gemm 47-49:flashinfer_moe_ep_mega_cutedsl 48-:aiter_triton_mxfp4_bf16|rdna3 50-:aiter_mega_moe|flashinfer_moe_ep_cutedsl 51-:aiter_triton_mxfp4_mxfp4
offload_backend 31-:auto|prefetch|uva
per_request_spec_decode_metrics 47-:detailed|none|summary
performance_mode 31-:balanced|interactivity|throughput
preemption_mode 15-21:recompute|swap
prefix_caching_hash_algo 13-:sha256 13-20:builtin 19-20:sha256_cbor_64bit 21-:sha256_cbor 26-:xxhash|xxhash_cbor
quantization 0-1:squeezellm 0-15:~ 0-17:aqlm|awq|awq_marlin|bitsandbytes|compressed-tensors|deepspeedfp|experts_int8|fbgemm_fp8|fp8|gguf|gptq|gptq_marlin|gptq_marlin_24|marlin|qqq|tpu_int8 1-17:neuron_quant 10-15:nvfp4 14-17:torchao 15-17:bitblas|gptq_bitblas 16-17:auto-round|modelopt_fp4 2-17:modelopt 3-17:ipex 5-17:hqq 7-17:quark 8-17:moe_wna16 9-17:ptpc_fp8
reasoning_parser 10-12:deepseek_r1
runner 20-:auto|draft|generate|pooling
safetensors_load_strategy 42-:eager|lazy|prefetch|torchao 49-:~
scheduling_policy 3-:fcfs|priority
sparse_indexer_topk_backend 48-:auto|cooperative|deep_select|flashinfer|per_row|persistent|torch 50-:aiter
spec_decoding_acceptance_method 0-12:rejection_sampler|typical_acceptance_sampler
spec_method 39-:custom_class|deepseek_mtp|dflash|draft_model|eagle|eagle3|ernie_mtp|exaone4_5_mtp|exaone_moe_mtp|extract_hidden_states|gemma4_mtp|glm4_moe_lite_mtp|glm4_moe_mtp|glm_ocr_mtp|hy_v3_mtp|longcat_flash_mtp|mimo_mtp|mimo_v2_mtp|mtp|nemotron_h_mtp|ngram|ngram_gpu|pangu_ultra_moe_mtp|qwen3_5_mtp|qwen3_next_mtp|step3p5_mtp|suffix 39-50:medusa|mlp_speculator 42-:minimax_m3_mtp 43-:bailing_hybrid_mtp|dspark 44-:inkling_mtp 45-:kimi_k3_mtp 46-:bailing_hybrid_v3_mtp|dots3_note_mtp 47-:hy_v4_mtp|qwen4_exp_mtp 48-:glm5_next_mtp 49-:~ 51-:step5_mtp
speculative_model_quantization 0-1:squeezellm 0-12:aqlm|awq|awq_marlin|bitsandbytes|compressed-tensors|deepspeedfp|experts_int8|fbgemm_fp8|fp8|gguf|gptq|gptq_marlin|gptq_marlin_24|marlin|qqq|tpu_int8|~ 1-12:neuron_quant 10-12:nvfp4 2-12:modelopt 3-12:ipex 5-12:hqq 7-12:quark 8-12:moe_wna16 9-12:ptpc_fp8
task 16-25:draft 4-25:auto|embedding|generate 5-25:classify|embed|reward|score 9-25:transcription
tokenizer_mode 0-24:auto|slow 1-24:mistral 9-24:custom
tool_call_parser 1-2:hermes|mistral
uvicorn_log_level 0-:critical|debug|error|info|trace|warning
video_pruning_method 45-:evs|vidcom2
"""

#: dest, then version ranges with the keys its JSON may have in them
KEYS = """\
attention_config 30-:backend|disable_flashinfer_q_quantization|flash_attn_max_num_splits_for_cuda_graph|flash_attn_version|use_trtllm_attention 30-38:disable_flashinfer_prefill|use_cudnn_prefill|use_trtllm_ragged_deepseek_prefill 30-46:use_prefill_decode_attention 31-:use_prefill_query_quantization 36-:tq_max_kv_splits_for_cuda_graph 36-47:use_fp4_indexer_cache 38-:mla_prefill_backend|use_non_causal 39-:flex_attn_block_m|flex_attn_block_n|flex_attn_kv_block_size|flex_attn_q_block_size 42-:indexer_kv_dtype 44-:backend_per_kind|sparse_mla_force_mqa 45-:minimax_m3_msa_decode_backend 48-:hisparse_config 49-:indexer_sparse_logits 50-:sparse_mla_prefill_workspace_factor|tokenspeed_mla_min_split_kv 51-:indexer_tp_shard_min_rows|minimax_m3_indexer_cp|trtllm_ragged_backend
aux_output_config 49-:enable_return_routed_experts|max_bytes
compilation_config 26-:backend|cache_dir|compile_cache_save_format|compile_mm_encoder|compile_sizes|cudagraph_capture_sizes|cudagraph_copy_inputs|cudagraph_mode|cudagraph_num_of_warmups|cudagraph_specialize_lora|custom_ops|debug_dump_path|dynamic_shapes_config|inductor_compile_config|inductor_passes|max_cudagraph_capture_size|mode|pass_config|splitting_ops|use_inductor_graph_partition 26-32:compile_ranges_split_points|level 30-:fast_moe_cold_start 33-:compile_ranges_endpoints 34-:cudagraph_mm_encoder|encoder_cudagraph_token_budgets 34-35:encoder_cudagraph_max_images_per_batch 36-:encoder_cudagraph_max_frames_per_batch|encoder_cudagraph_max_vision_items_per_batch|ir_enable_torch_wrap 50-:cudagraph_decoder_replay|decoder_replay_cudagraph_capture_sizes|decoder_replay_trim_threshold
ec_manager_config 46-:encoder_cache_manager_cls|manager_config
ec_transfer_config 30-:ec_buffer_device|ec_buffer_size|ec_connector|ec_connector_extra_config|ec_connector_module_path|ec_ip|ec_port|ec_role|engine_id 30-49:ec_parallel_size|ec_rank
engram_config 48-:cpu_offload|dp_shared_memory|embedding_across_dp 49-:use_thp
eplb_config 30-:log_balancedness|log_balancedness_interval|num_redundant_experts|policy|step_interval|use_async|window_size 36-:communicator 50-:enable_migration_batching
fault_tolerance_config 45-:engine_recovery_timeout_sec
ir_op_priority 36-:rms_norm 38-:fused_add_rms_norm 48-:gelu_and_mul_sparse
kernel_config 30-:enable_flashinfer_autotune 31-:moe_backend 36-:ir_op_priority 39-:linear_backend 43-:enable_cutedsl_warmup 44-47:enable_bf16x3_router_gemm 45-:enable_jit_warmup 48-:linear_backend_per_quant|sparse_indexer_topk_backend 50-:enable_rocm_segmented_attn_autotune 51-:monokernel
kv_events_config 16,30-:buffer_steps|enable_kv_cache_events|endpoint|hwm|max_queue_size|publisher|replay_endpoint|topic
kv_transfer_config 16,30-:engine_id|kv_buffer_device|kv_connector|kv_connector_extra_config|kv_connector_module_path|kv_port|kv_role 16,30-49:kv_buffer_size|kv_ip|kv_parallel_size|kv_rank 30-:enable_permute_local_kv|kv_load_failure_policy
logging_config 49-:configure_logging|log_level|pylogging_config_file 50-:formatter
pooler_config 30-:dimensions|enable_chunked_processing|max_embed_len|pooling_type|returned_token_ids|seq_pooling_type|step_tag_id|tok_pooling_type|use_activation 30-40:logit_bias 34-:task 36-:logit_mean|logit_sigma 36-40:logit_scale 50-:enable_flash_late_interaction
profiler_config 30-:delay_iterations|ignore_frontend|max_iterations|profiler|torch_profiler_dir|torch_profiler_dump_cuda_time_total|torch_profiler_record_shapes|torch_profiler_use_gzip|torch_profiler_with_flops|torch_profiler_with_memory|torch_profiler_with_stack 33-:active_iterations|wait_iterations|warmup_iterations 44-:capture_torch_profiler|detailed_trace_annotation 46-:proton_backend|proton_context|proton_data|proton_hook|proton_mode|proton_output_format|proton_profiler_dir 48-:proton_graph_attribution 49-:torch_profiler_activities
quantization_config 39-:ignore|linear|moe 48-:targets
reasoning_config 34-:reasoning_end_str|reasoning_start_str 36-:reasoning_parser
structured_outputs_config 30-:backend|disable_additional_properties|disable_any_whitespace|enable_in_reasoning|reasoning_parser|reasoning_parser_plugin 30-32:disable_fallback
watchdog_config 51-:check_interval|dump_dir|timeout
weight_transfer_config 30-:backend
"""
