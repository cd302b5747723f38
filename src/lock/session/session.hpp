#pragma once

#include "lock/session/change_news.hpp"
#include "lock/session/grant_ledger.hpp"
#include "lock/wakeup/hint.hpp"
#include "lock/wakeup/mailbox.hpp"
#include <rowlock/ids.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::detail {

/// The client's view of one session row: its identity, its trust window, its grants and the news of
/// its changed rows. Thread-safe.
class session {
public:
    /// How the session is woken.
    struct endpoint {
        wakeup::wake_address address{};
        std::unique_ptr<wakeup::mailbox> mailbox{};  ///< null where none is available
    };

    session(session_id id, std::string server, endpoint wakeups, nanoseconds trusted_until,
            nanoseconds opened)
        : id_{id},
          server_{std::move(server)},
          endpoint_{std::move(wakeups)},
          trust_{std::make_shared<trust_window>(trusted_until)},
          last_beat_{opened.count()} {}

    [[nodiscard]] session_id id() const noexcept { return id_; }
    /// The server the session was opened on; empty if it did not identify itself.
    [[nodiscard]] const std::string& server() const noexcept { return server_; }
    [[nodiscard]] const wakeup::wake_address& address() const noexcept { return endpoint_.address; }
    [[nodiscard]] const wakeup::mailbox* mailbox() const noexcept {
        return endpoint_.mailbox.get();
    }
    /// Whether `server` is known to differ from server().
    [[nodiscard]] bool lives_elsewhere(const std::optional<std::string>& server) const noexcept {
        return server && !server->empty() && !server_.empty() && *server != server_;
    }
    [[nodiscard]] const std::shared_ptr<trust_window>& trust() const noexcept { return trust_; }

    [[nodiscard]] grant_ledger& grants() noexcept { return grants_; }
    [[nodiscard]] const grant_ledger& grants() const noexcept { return grants_; }
    /// A statement with this new grant id is about to be sent.
    void expect(const protocol::hold_key& wanted) {
        if (wanted.part) expect_parts();
        grants_.expect(wanted.grant_id);
    }
    /// Counted holds may become this session's: from then on it may have rows of them.
    void expect_parts() noexcept { expects_parts_ = true; }
    [[nodiscard]] bool expects_parts() const noexcept { return expects_parts_; }

    [[nodiscard]] change_news& news() noexcept { return news_; }
    [[nodiscard]] const change_news& news() const noexcept { return news_; }

    /// When the last confirmed heartbeat was sent.
    [[nodiscard]] nanoseconds last_beat() const noexcept { return nanoseconds{last_beat_.load()}; }
    void beaten(nanoseconds when) noexcept;

    // Used by the heartbeat thread alone.
    /// Heartbeats since the rows were last compared with the held grants. Counts only after an
    /// outcome was unknown: a server that was stopped may run a statement long after every bound.
    int beats_since_compared = 0;
    /// Heartbeats since the rows of the held grants were read.
    int beats_since_read = 0;
    /// Not before then are they read again.
    nanoseconds next_read{0};

private:
    const session_id id_;
    const std::string server_;
    const endpoint endpoint_;
    const std::shared_ptr<trust_window> trust_;
    std::atomic<nanoseconds::rep> last_beat_;

    grant_ledger grants_;
    std::atomic<bool> expects_parts_{false};
    change_news news_;
};

}  // namespace rowlock::detail
