#pragma once

namespace rowlock::detail {

class client_connections;
class client_context;
class client_waiters;
class grant_lifecycle;
class lease_batches;
class permit_batches;
class retention;
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
    lease_batches& batches;
    permit_batches& permits;
    client_waiters& waiting;
    token_cache& tokens;
    retention& kept;
};

}  // namespace rowlock::detail
