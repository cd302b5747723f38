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

/// Locks on Redis by hiredis, one connection a worker, over the unix socket.
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
    /// Waits for a message on a channel that was subscribed to; empty when the time is over.
    reply next_message(std::chrono::milliseconds patience);

private:
    [[noreturn]] void fail();

    std::unique_ptr<redisContext, close_context> context_;
};

/// SET with NX and PX; released by a script that compares the owner and deletes.
[[nodiscard]] std::unique_ptr<worker> redis_lock(const std::string& socket,
                                                 const std::string& name);

/// A fair queue: a list of waiters, a sorted set of when each of them will be given up, a hash that
/// is the lock, and a channel for each waiter on which the release calls the next one.
[[nodiscard]] handoff::contest redis_fair_queue(const std::string& socket, const std::string& tag);

}  // namespace bench
