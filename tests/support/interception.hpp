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

/// Stands between a client and its connections: counts statements and lets a test step in right
/// before or right after one, on the client's own thread. That is how interleavings are forced and
/// replies lost at the very place, with every driver alike.
class interception {
public:
    /// `name` is the statement's name ("acquire"), or the text of a query.
    using hook = std::function<void(std::string_view name)>;

    /// Sent by the thread that made this object; a client's heartbeat does not count.
    std::atomic<int> statements{0};

    /// Whether a transaction may be sent as a whole, under the name "transaction". If not there is
    /// one statement for each step, with room between them.
    std::atomic<bool> transactions{false};

    /// Called before the statement is sent; may throw, then it is not sent.
    void before(hook action);
    /// Called after the answer came; may throw, then the client never sees the answer.
    void after(hook action);

    /// From inside a hook: the connection breaks here, as far as the client can tell.
    [[noreturn]] static void lose_reply();
    [[noreturn]] static void refuse_to_send();

    /// From inside a hook: the integer that the statement carries as its parameter $`number`. The
    /// grant id of an acquire that is sent alone ("acquire", on MySQL "insert_lease") is $3.
    [[nodiscard]] static std::int64_t parameter(std::size_t number);

    /// All connections that exist now are found broken at their next use.
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
