#pragma once

#include "cli/database.hpp"
#include "cli/json.hpp"
#include "upkeep/blocking_transactions.hpp"

#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <vector>

/// Transactions that keep a lock's rows locked, such as an open fenced one of its holder: the lock
/// can be neither broken nor granted before they end.
namespace rowlock::cli {

/// Empty also if they cannot be read now: nothing rests on it.
[[nodiscard]] std::vector<detail::blocking_transaction> blockers_of(
    const database& in, const std::string& name) noexcept;

/// One on a line: whose, its state, its age, and how to end it.
[[nodiscard]] std::string text_of(const database& in, const detail::blocking_transaction& one);
[[nodiscard]] json to_json(const std::vector<detail::blocking_transaction>& all);

/// The transactions that a statement waits for: says which, once it waits for a second.
class blocked_statement {
public:
    blocked_statement(const database& in, const std::string& name) : in_{in}, name_{name} {}

    /// To be called again and again while the statement waits.
    void look();
    /// Rethrows the statement's failure; if transactions are the reason, as one that names them.
    [[noreturn]] void rethrow(const std::exception_ptr& thrown) const;

private:
    const database& in_;
    const std::string& name_;
    std::string said_{};
};

/// What `call` returns, which changes a lock's rows; on another thread.
/// @throws failure if a transaction keeps them locked; what `call` throws
template <typename Call>
auto beside_blockers(const database& in, const std::string& name, Call call) {
    using namespace std::chrono_literals;
    blocked_statement waits{in, name};
    auto done = std::async(std::launch::async, std::move(call));
    while (done.wait_for(1s) != std::future_status::ready) waits.look();
    try {
        return done.get();
    } catch (...) {
        waits.rethrow(std::current_exception());
    }
}

}  // namespace rowlock::cli
