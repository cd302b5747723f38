#pragma once

#include "base/clock.hpp"
#include "coordination/session/grant.hpp"
#include "coordination/wakeup/hint.hpp"
#include "coordination/wakeup/mailbox.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace rowlock::detail {

/// A grant in an unknown state: the reply to its acquire, enqueue or release was lost. Each
/// heartbeat cancels its queue entry and releases the grant, until no statement that could still
/// create it should be running.
struct unresolved_grant {
    std::string name{};
    std::int64_t grant_id;
    nanoseconds not_after;      ///< on our clock
    bool surely_ended = false;  ///< known to have ended: its row is cleared, nothing is reported
    bool queued = false;        ///< it may have a ticket
    /// For a lost grant: its holder may work until then (the margin), on our clock.
    nanoseconds not_before{0};
    std::shared_ptr<const grant> holder{};  ///< set by remember()

    [[nodiscard]] bool is_due(nanoseconds now) const noexcept {
        return now >= not_before || !holder || holder->stopped;
    }
};

/// The client's view of one session row: its trust window, the grants it holds and those in an
/// unknown state. Thread-safe.
///
/// Every grant id is known here (pending, then held) from before its statement is sent until its
/// release is confirmed. A row of this session with an unknown grant id is given back.
class session {
public:
    /// How the session is woken.
    struct ears {
        strategy::wake_address address{};
        std::unique_ptr<wakeup::mailbox> mailbox{};  ///< null where none is available
    };

    session(std::int64_t id, std::string server, ears heard_by, nanoseconds trusted_until,
            nanoseconds opened)
        : id_{id},
          server_{std::move(server)},
          ears_{std::move(heard_by)},
          trust_{std::make_shared<trust_window>(trusted_until)},
          last_beat_{opened.count()} {}

    [[nodiscard]] std::int64_t id() const noexcept { return id_; }
    /// The server the session was opened on; empty if it did not identify itself.
    [[nodiscard]] const std::string& server() const noexcept { return server_; }
    [[nodiscard]] const strategy::wake_address& address() const noexcept { return ears_.address; }
    [[nodiscard]] const wakeup::mailbox* mailbox() const noexcept { return ears_.mailbox.get(); }
    /// Whether `server` is known to differ from server().
    [[nodiscard]] bool lives_elsewhere(const std::optional<std::string>& server) const noexcept {
        return server && !server->empty() && !server_.empty() && *server != server_;
    }
    [[nodiscard]] const std::shared_ptr<trust_window>& trust() const noexcept { return trust_; }

    void expect(std::int64_t grant_id);           ///< an acquire with this id is about to be sent
    void forget(std::int64_t grant_id) noexcept;  ///< neither pending nor held any more
    void hold(const std::shared_ptr<grant>& granted);
    [[nodiscard]] bool knows(std::int64_t grant_id) const;
    [[nodiscard]] std::vector<std::shared_ptr<grant>> held() const;
    /// Allocates nothing. `use` must not call the session: its mutex is held.
    template <typename Use>
    void for_each_held(Use use) const {
        const std::lock_guard lock{mutex_};
        for (const auto& [id, granted] : held_) use(*granted);
    }
    /// Includes lost grants while their rows may still be ours.
    [[nodiscard]] std::size_t held_count() const;
    /// Excludes lost grants.
    [[nodiscard]] std::size_t leases() const;
    /// Whether the holder of any grant, lost or not, may still work under it: it has not reported
    /// that it stopped.
    [[nodiscard]] bool has_holder(nanoseconds now) const;
    /// Whether a lease is held that the thread with this label acquired.
    [[nodiscard]] bool holds_for(const std::string& thread) const;

    void remember(unresolved_grant what);
    [[nodiscard]] std::vector<unresolved_grant> unresolved() const;
    void resolved(std::int64_t grant_id);
    /// Moves it to the end of unresolved().
    void postpone(std::int64_t grant_id);
    [[nodiscard]] bool is_unresolved(std::int64_t grant_id) const;
    [[nodiscard]] std::size_t unresolved_count() const;
    /// Excludes those whose holders have a margin left.
    [[nodiscard]] std::size_t unresolved_due(nanoseconds now) const;

    /// As last read. Atomic: a late heartbeat is also sent on a second connection.
    std::atomic<std::int64_t> revision{0};
    /// When the last confirmed heartbeat was sent.
    [[nodiscard]] nanoseconds last_beat() const noexcept { return nanoseconds{last_beat_.load()}; }
    void beaten(nanoseconds when) noexcept;

    // Notifications, outside the tables, that another client has changed our rows. A hint: it moves
    // the next heartbeat forward, at most once a second, since any client that can read our secret
    // can send anything.
    /// Whether this revision is later than the known one and any notified one.
    [[nodiscard]] bool is_news(std::int64_t of) const;
    /// Records a proved notification. True if the next heartbeat is now due at news_at() and was
    /// not before.
    bool tell(std::int64_t of, nanoseconds now);
    /// When to send the heartbeat that reads the news; base::alarm::never if there is none.
    [[nodiscard]] nanoseconds news_at() const;
    /// The greatest revision notified.
    [[nodiscard]] std::int64_t told() const;
    /// A heartbeat that was sent when told() was `before` has confirmed the revision that we know.
    void settle_news(std::int64_t before, nanoseconds now);

    // Used by the heartbeat thread alone.
    /// Heartbeats since the rows were last compared with the held grants. Counts only after an
    /// outcome was unknown: a server that was stopped may run a statement long after every bound.
    int beats_since_compared = 0;
    /// Heartbeats since the rows of the held grants were read.
    int beats_since_read = 0;
    [[nodiscard]] bool ever_unknown() const;
    /// Notes an unknown outcome that has no single grant id.
    void doubt() noexcept;

private:
    const std::int64_t id_;
    const std::string server_;
    const ears ears_;
    const std::shared_ptr<trust_window> trust_;
    std::atomic<nanoseconds::rep> last_beat_;

    mutable std::mutex mutex_;
    std::unordered_set<std::int64_t> pending_;
    std::unordered_map<std::int64_t, std::shared_ptr<grant>> held_;
    std::vector<unresolved_grant> unresolved_;
    bool ever_unknown_ = false;
    std::int64_t told_ = 0;
    nanoseconds news_at_{0};
    nanoseconds no_news_before_{0};
};

}  // namespace rowlock::detail
