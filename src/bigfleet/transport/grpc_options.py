"""The gRPC options of channels and servers, each with the reason for its value."""

Options = tuple[tuple[str, int], ...]

MIB = 1 << 20

# What an operator, a shard or the coordinator may send in one message. The largest legitimate one is a roll-up:
# 64 unit sizes of each of 60 profiles and 20,000 gangs are some 24,000 rows of 300 to 1,000 bytes, under 24 MiB.
MAX_MESSAGE_BYTES = 32 * MIB

# What a provider may answer. A shard's full List is up to 500,000 machines in one message, 600 to 1,000 bytes each
# with labels and metadata, so 300 to 500 MB; twice that is left for wordier labels. protobuf ends at 2 GiB.
MAX_PROVIDER_MESSAGE_BYTES = 1024 * MIB

# A dead peer is noticed within KEEPALIVE_TIME + KEEPALIVE_TIMEOUT, well inside the 60 s for which demand outlives its
# session. The server tolerates pings three times as frequent, from operators other than ours.
_KEEPALIVE_TIME_MS = 30_000
_KEEPALIVE_TIMEOUT_MS = 10_000
_TOLERATED_PING_INTERVAL_MS = _KEEPALIVE_TIME_MS // 3

_KEEPALIVE: Options = (
    ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    # By default the library stops after two pings without data, which is when pings are needed.
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: Options = (
    *_KEEPALIVE,
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _TOLERATED_PING_INTERVAL_MS),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A peer needs one session or a handful of unary calls at a time; more on one connection is a fault or an attack.
    ("grpc.max_concurrent_streams", 100),
    # Calls that have arrived and not been looked at yet. After a restart all operators of a fleet connect at once, and
    # above the first bound gRPC cancels some at random.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 40_000),
    # With it on, a second program on the same port would silently share its connections.
    ("grpc.so_reuseport", 0),
)

PROVIDER_SERVER_OPTIONS: Options = (
    *(option for option in SERVER_OPTIONS if option[0] != "grpc.max_concurrent_streams"),
    # A shard runs hundreds of calls at a time, and a stream counts here for a moment after its caller saw it end; one
    # too many is refused as UNAVAILABLE.
    ("grpc.max_concurrent_streams", 2_000),
)

CHANNEL_OPTIONS: Options = (
    *_KEEPALIVE,
    # A foreign server may take pings on an idle connection for abuse and close it.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # The dialer checks the server itself before gRPC connects, and does not go through proxies.
    ("grpc.enable_http_proxy", 0),
)

PROVIDER_CHANNEL_OPTIONS: Options = (
    *(option for option in CHANNEL_OPTIONS if option[0] != "grpc.max_receive_message_length"),
    ("grpc.max_receive_message_length", MAX_PROVIDER_MESSAGE_BYTES),
    # A retry by the library would repeat a fencing token; each attempt must carry one of its own.
    ("grpc.enable_retries", 0),
)
