#pragma once

#include <rowlock/error.hpp>
#include <rowlock/sql/connection.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace support {

/// Intercepts a client's statements: counts them and runs a test's hook right before or after one,
/// in the client's own thread. So a test forces interleavings and loses replies at an exact point,
/// with every driver alike.
class interception {
public:
    /// `name` is the statement's name ("acquire"), or the text of a query.
    using hook = std::function<void(std::string_view name)>;

    /// The number of statements sent by the thread that made this object. A client's heartbeat does
    /// not count.
    std::atomic<int> statements{0};

    /// Whether a transaction may be sent as one text, under the name "transaction". If not, each
    /// step is one statement, with hooks between them.
    std::atomic<bool> transactions{false};

    /// Called before the statement is sent; may throw, then it is not sent.
    void before(hook action);
    /// Called after the answer arrived; may throw, then the client never sees the answer.
    void after(hook action);

    /// An after() that loses the reply to the commit of a change, once, and sets `lost`.
    /// @param is_of_it whether a statement of that name is part of the change
    /// @param in_transaction whether a commit follows it; if not, it commits by itself
    void lose_commit(std::function<bool(std::string_view name)> is_of_it, bool in_transaction,
                     std::atomic<bool>& lost);

    /// From inside a hook: breaks the connection, from the client's point of view.
    [[noreturn]] static void lose_reply();
    [[noreturn]] static void refuse_to_send();

    /// From inside a hook: the integer parameter $`number` of the statement. The grant id of an
    /// acquire outside a batch ("acquire", on MySQL "insert_lease") is $3.
    [[nodiscard]] static std::int64_t parameter(std::size_t number);

    /// Breaks all existing connections at their next use.
    void break_connections() { ++generation_; }

    [[nodiscard]] rowlock::sql::connection_source wrap(rowlock::sql::connection_source inner);

private:
    friend class intercepted_connection;

    void run_before(std::string_view name) const;
    void run_after(std::string_view name) const;

    struct hooks {
        hook before;
        hook after;
    };
    const std::thread::id counted_ = std::this_thread::get_id();
    mutable std::mutex mutex_;
    hooks hooks_;
    std::atomic<int> generation_{0};
};

}  // namespace support
