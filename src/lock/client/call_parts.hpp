#pragma once

namespace rowlock::detail {

class call_batches;
class client_connections;
class client_context;
class client_waiters;
class grant_lifecycle;
class retry_loop;
class session_keeper;
class session_registry;
class token_cache;

/// The parts of a client that an acquire and a release use. They live as long as the client.
struct call_parts {
    client_context& context;
    client_connections& connections;
    session_registry& sessions;
    session_keeper& keeper;
    retry_loop& retries;
    grant_lifecycle& grants;
    call_batches& batches;
    client_waiters& waiting;
    token_cache& tokens;
};

}  // namespace rowlock::detail
