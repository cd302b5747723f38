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

/// A grant whose fate is unknown: an acquire, a place in a queue or a release whose reply did not
/// come. The place is given up and the grant released with each heartbeat, until no statement that
/// could still create it should be running.
struct unresolved_grant {
    std::string name{};
    std::int64_t grant_id;
    nanoseconds not_after;      ///< on our clock
    bool surely_ended = false;  ///< no doubt about it: a row to be cleared, nothing to report
    bool queued = false;        ///< a ticket may stand for it
    /// Of a grant that was lost: its holder may work on for the margin, on our clock.
    nanoseconds not_before{0};
    std::shared_ptr<const grant> holder{};  ///< set by remember()

    [[nodiscard]] bool is_due(nanoseconds now) const noexcept {
        return now >= not_before || !holder || holder->stopped;
    }
};

/// Our side of one session row: what we believe, what we hold, what we do not know. Thread-safe.
///
/// Every grant id is known here (pending, then held) from before its statement is sent until its
/// release is confirmed. A row of this session in the database whose grant id is not known is one
/// to give back.
class session {
public:
    /// How it is woken.
    struct ears {
        strategy::wake_address address{};
        std::unique_ptr<wakeup::mailbox> mailbox{};  ///< null where none can be had
    };

    session(std::int64_t id, std::string server, ears heard_by, nanoseconds trusted_until,
            nanoseconds opened)
        : id_{id},
          server_{std::move(server)},
          ears_{std::move(heard_by)},
          trust_{std::make_shared<trust_window>(trusted_until)},
          last_beat_{opened.count()} {}

    [[nodiscard]] std::int64_t id() const noexcept { return id_; }
    /// The one on which it lives; empty if that did not tell.
    [[nodiscard]] const std::string& server() const noexcept { return server_; }
    [[nodiscard]] const strategy::wake_address& address() const noexcept { return ears_.address; }
    [[nodiscard]] const wakeup::mailbox* mailbox() const noexcept { return ears_.mailbox.get(); }
    /// Whether `server`, as far as it tells, is another one.
    [[nodiscard]] bool lives_elsewhere(const std::optional<std::string>& server) const noexcept {
        return server && !server->empty() && !server_.empty() && *server != server_;
    }
    [[nodiscard]] const std::shared_ptr<trust_window>& trust() const noexcept { return trust_; }

    void expect(std::int64_t grant_id);           ///< an acquire with this id is about to be sent
    void forget(std::int64_t grant_id) noexcept;  ///< neither pending nor held any more
    void hold(const std::shared_ptr<grant>& granted);
    [[nodiscard]] bool knows(std::int64_t grant_id) const;
    [[nodiscard]] std::vector<std::shared_ptr<grant>> held() const;
    /// Without memory; `use` may not ask the session for anything.
    template <typename Use>
    void for_each_held(Use use) const {
        const std::lock_guard lock{mutex_};
        for (const auto& [id, granted] : held_) use(*granted);
    }
    /// Lost ones among them, as long as their rows may be ours.
    [[nodiscard]] std::size_t held_count() const;
    /// Without those that are lost.
    [[nodiscard]] std::size_t leases() const;
    /// Whether the holder of a grant, lost or not, may still work under it: it has not said that it
    /// stopped.
    [[nodiscard]] bool has_holder(nanoseconds now) const;
    /// Whether a lease is held that this thread, by its label, acquired.
    [[nodiscard]] bool holds_for(const std::string& thread) const;

    void remember(unresolved_grant what);
    [[nodiscard]] std::vector<unresolved_grant> unresolved() const;
    void resolved(std::int64_t grant_id);
    /// To the end of unresolved().
    void postpone(std::int64_t grant_id);
    [[nodiscard]] bool is_unresolved(std::int64_t grant_id) const;
    [[nodiscard]] std::size_t unresolved_count() const;
    /// Without those whose holders have a margin left.
    [[nodiscard]] std::size_t unresolved_due(nanoseconds now) const;

    /// As last read. A heartbeat that is late is sent on a second connection, too.
    std::atomic<std::int64_t> revision{0};
    /// When the last heartbeat was sent that the database confirmed.
    [[nodiscard]] nanoseconds last_beat() const noexcept { return nanoseconds{last_beat_.load()}; }
    void beaten(nanoseconds when) noexcept;

    // That another client has changed our rows, said past the database: a hint. It moves the next
    // heartbeat forward, and no more often than each second: one that can read our secret can say
    // whatever it likes.
    /// Whether this revision is a later one than we know or were told of.
    [[nodiscard]] bool is_news(std::int64_t of) const;
    /// We were told of it, with a proof. True if the next heartbeat is to be sent at news_at(), and
    /// was not before.
    bool tell(std::int64_t of, nanoseconds now);
    /// When to send a heartbeat that finds out; base::alarm::never if there is nothing to find.
    [[nodiscard]] nanoseconds news_at() const;
    /// The greatest that we were told of.
    [[nodiscard]] std::int64_t told() const;
    /// The database has confirmed the revision that we know, by a heartbeat that was sent when we
    /// had been told of `before`.
    void settle_news(std::int64_t before, nanoseconds now);

    // Used by the heartbeat thread alone.
    /// Heartbeats since the rows were last compared with what we hold. Counts only once an outcome
    /// was unknown: a server that was stopped may run a statement long after every bound.
    int beats_since_compared = 0;
    /// Heartbeats since the rows of what we hold were read.
    int beats_since_read = 0;
    [[nodiscard]] bool ever_unknown() const;
    /// Something happened whose outcome is unknown and has no single grant id.
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
