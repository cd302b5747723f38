#pragma once

#include "cli/commands.hpp"
#include <rowlock/client.hpp>
#include <rowlock/fencing_token.hpp>
#include <rowlock/lock_name.hpp>
#include <rowlock/semaphore.hpp>
#include <rowlock/shared_mutex.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace rowlock::cli {

/// A hold that can be broken.
struct breakable {
    using kind = break_options::kind;
    kind of = kind::lease;
    fencing_token token{};
    holder_info who{};
    std::string share{};          ///< its mode or permits, for people
    fencing_token first_token{};  ///< of a shared_mutex, from before an upgrade
};

/// The locks of one name: a lease, and a semaphore or shared_mutex.
class named_locks {
public:
    named_locks(client& locks, const std::string& name)
        : locks_{locks}, name_{name}, semaphore_{locks, name_}, shared_{locks, name_} {}

    /// All holds, or those of one kind.
    [[nodiscard]] std::vector<breakable> holds(std::optional<breakable::kind> of);
    /// As it is now; nullopt if it holds no more. An upgrade changes the token of a hold, and not
    /// its grant id.
    [[nodiscard]] std::optional<breakable> find(const breakable& whom);
    [[nodiscard]] std::vector<waiter_info> waiters(breakable::kind of);

    /// As client::request_release().
    [[nodiscard]] std::optional<std::chrono::milliseconds> request_release(
        const breakable& whom, const request_options& terms);
    /// As client::force_release().
    [[nodiscard]] bool force_release(const breakable& whom);

private:
    std::vector<breakable> of_counters(std::optional<breakable::kind> of);

    client& locks_;
    lock_name name_;
    rowlock::semaphore semaphore_;
    shared_mutex shared_;
};

}  // namespace rowlock::cli
