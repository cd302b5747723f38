#pragma once

#include "common/measure.hpp"
#include "handoff/race.hpp"

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

struct redisContext;
struct redisReply;

/// Locks on Redis by hiredis, with one connection for each worker, over the unix socket.
namespace bench {

class redis_session {
public:
    struct close_context {
        void operator()(redisContext* context) const;
    };
    struct free_reply {
        void operator()(redisReply* reply) const;
    };
    using reply = std::unique_ptr<redisReply, free_reply>;

    explicit redis_session(const std::string& socket);

    reply run(std::initializer_list<std::string_view> words);
    /// Returns the script's name for EVALSHA.
    std::string load(std::string_view script);
    /// Waits for a message on a subscribed channel. Empty after `patience`.
    reply next_message(std::chrono::milliseconds patience);

private:
    [[noreturn]] void fail();

    std::unique_ptr<redisContext, close_context> context_;
};

/// SET with NX and PX. A script that compares the owner and deletes the key releases it.
[[nodiscard]] std::unique_ptr<worker> redis_lock(const std::string& socket,
                                                 const std::string& name);

/// A hash with the owner's depth that expires. Scripts take it, once more for its owner, and give
/// it back, and tell the waiters' channel.
[[nodiscard]] std::unique_ptr<worker> redis_hash_lock(const std::string& socket,
                                                      const std::string& name);

/// A read/write lock as its readers use it: a hash with the mode and a count for each reader, and a
/// key for each hold that expires with it.
[[nodiscard]] std::unique_ptr<worker> redis_read_lock(const std::string& socket,
                                                      const std::string& name, int reader);

/// Permits that expire: a sorted set of the holds by the time of their end, and a counter.
[[nodiscard]] std::unique_ptr<worker> redis_semaphore(const std::string& socket,
                                                      const std::string& name, int capacity);

/// A fair queue: a list of waiters, a sorted set of their timeouts, a hash that is the lock, and a
/// channel for each waiter on which the release notifies the next one.
[[nodiscard]] handoff::contest redis_fair_queue(const std::string& socket, const std::string& tag);

}  // namespace bench
