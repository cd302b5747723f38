#include "sql/shared_connection.hpp"

#include "sql/connection_memory.hpp"
#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>

namespace rowlock::sql {
namespace {

using std::chrono::steady_clock;

error broke_meanwhile() {
    return error{errc::database_unreachable,
                 "the connection broke in another call of this client: try again"};
}

}  // namespace

/// The connection and its current turn. Only the user that has the turn uses `db`.
class shared_connection::wire {
public:
    wire(std::unique_ptr<connection> made, const settings& how)
        : db{std::move(made)},
          known{memory_of(*db)},
          keeps_state{db->keeps_session_state()},
          announced_process{db->announced_process()},
          on_used_{how.on_used} {}

    /// @throws error errc::timed_out, database_unreachable if the connection is broken
    void take_turn(rank who, deadline until) {
        std::unique_lock lock{mutex_};
        const bool first = who == rank::first;
        if (first) ++first_waiting_;
        ++waiting_;
        const bool mine = freed_.wait_until(
            lock, until, [&] { return over() || (!taken_at_ && (first || first_waiting_ == 0)); });
        --waiting_;
        if (first && --first_waiting_ == 0) freed_.notify_all();
        if (!mine) {
            throw error{errc::timed_out,
                        "the one connection of this client was busy until the deadline"};
        }
        if (over()) throw broke_meanwhile();
        taken_at_ = steady_clock::now();
    }

    [[nodiscard]] bool try_turn() noexcept {
        const std::lock_guard lock{mutex_};
        if (taken_at_ || over()) return false;
        taken_at_ = steady_clock::now();
        return true;
    }

    void end_turn() noexcept {
        const std::lock_guard lock{mutex_};
        taken_at_.reset();
        freed_.notify_all();
    }

    [[nodiscard]] std::chrono::nanoseconds busy_for() const {
        const std::lock_guard lock{mutex_};
        if (!taken_at_) return std::chrono::nanoseconds{0};
        return std::max<std::chrono::nanoseconds>(steady_clock::now() - *taken_at_,
                                                  std::chrono::nanoseconds{1});
    }
    [[nodiscard]] std::size_t waiting() const {
        const std::lock_guard lock{mutex_};
        return waiting_;
    }

    /// Whether no user gets a turn any more.
    [[nodiscard]] bool over() const noexcept { return broken_ || replaced_; }
    void note_broken() noexcept { end(broken_); }
    /// Called by renew(): the current turn may finish, no other begins.
    void replace() noexcept { end(replaced_); }
    [[nodiscard]] bool broken() const noexcept { return broken_; }

    /// After a turn that may have read a notification or found the connection broken.
    void tell_listeners() const noexcept {
        if ((heard || over()) && on_used_) on_used_();
    }

    const std::unique_ptr<connection> db;
    const connection_memory known;  ///< learnt when it was made, before it was shared
    const bool keeps_state;
    const std::int64_t announced_process;
    std::atomic<bool> heard{false};  ///< a user listens
    std::atomic<int> descriptor{-1};

private:
    void end(std::atomic<bool>& by) noexcept {
        const std::lock_guard lock{mutex_};
        by = true;
        freed_.notify_all();
    }

    const std::function<void()> on_used_;
    std::atomic<bool> broken_{false};
    std::atomic<bool> replaced_{false};
    mutable std::mutex mutex_;
    std::condition_variable freed_;
    std::optional<steady_clock::time_point> taken_at_;
    std::size_t waiting_ = 0;
    int first_waiting_ = 0;
};

/// One user's connection object on the wire.
class shared_connection::user final : public connection, private sql::notifications {
public:
    user(std::shared_ptr<wire> on, rank who) : wire_{std::move(on)}, rank_{who} {
        const auto& known = wire_->known;
        auto& mine = memory_of(*this);
        mine.facts = known.facts;
        mine.server = known.server;
        mine.wakeup_lock = known.wakeup_lock;
        mine.refuses_skip_locked = known.refuses_skip_locked;
    }

    ~user() override {
        // No other user may continue in a transaction that could not be ended.
        if (!discarded() && !in_transaction_) return;
        wire_->note_broken();
        if (in_transaction_) wire_->end_turn();
        wire_->tell_listeners();
    }

    [[nodiscard]] dialect speaks() const noexcept override { return wire_->db->speaks(); }

    result execute(const statement& what, std::span<const value> parameters,
                   deadline until) override {
        return in_turn(until, [&](connection& db) { return db.execute(what, parameters, until); });
    }

    result query(std::string_view text, deadline until) override {
        const bool ends = text == "commit" || text == "rollback";
        return in_turn(until, [&](connection& db) {
            auto answer = db.query(text, until);
            if (text.starts_with("begin")) in_transaction_ = true;
            if (ends) in_transaction_ = false;
            return answer;
        });
    }

    std::optional<bool> transact(std::span<const step> steps, std::string_view afterwards,
                                 deadline until) override {
        return in_turn(until,
                       [&](connection& db) { return db.transact(steps, afterwards, until); });
    }

    [[nodiscard]] bool alive() const noexcept override {
        return in_transaction_ ? !wire_->broken() : !wire_->over();
    }
    [[nodiscard]] bool keeps_session_state() const noexcept override { return wire_->keeps_state; }
    [[nodiscard]] transaction_state transaction() const noexcept override {
        return in_transaction_ ? transaction_state::open : transaction_state::none;
    }
    [[nodiscard]] sql::notifications* notifications() noexcept override {
        return wire_->db->notifications() == nullptr ? nullptr : this;
    }
    [[nodiscard]] std::int64_t announced_process() const noexcept override {
        return wire_->announced_process;
    }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return round_trips_; }

private:
    /// Gives the turn back, unless a transaction is still open.
    class turn {
    public:
        explicit turn(user& mine, bool quietly = false)
            : mine_{mine}, before_{mine.wire_->db->round_trips()}, quietly_{quietly} {}
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;
        ~turn() { mine_.leave(before_, quietly_); }

    private:
        user& mine_;
        const std::uint64_t before_;
        const bool quietly_;  ///< does not notify the listeners
    };

    template <typename Call>
    std::invoke_result_t<Call&, connection&> in_turn(deadline until, Call call) {
        if (!in_transaction_) wire_->take_turn(rank_, until);
        const turn mine{*this};
        return call(*wire_->db);
    }

    void leave(std::uint64_t trips_before, bool quietly) noexcept {
        auto& db = *wire_->db;
        round_trips_ += db.round_trips() - trips_before;
        if (!db.alive() || db.discarded()) {
            wire_->note_broken();
            in_transaction_ = false;
        }
        if (auto* const notifications = db.notifications();
            notifications != nullptr && wire_->heard) {
            wire_->descriptor = wire_->broken() ? -1 : notifications->descriptor();
        }
        if (in_transaction_) return;
        wire_->end_turn();
        // A waiter takes what its own turns have read. The heartbeat may not: another listener may
        // have replaced it.
        if (!quietly && !(listens_ && rank_ == rank::usual)) wire_->tell_listeners();
    }

    // --- notifications
    void listen(std::string_view channel, deadline until) override {
        in_turn(until, [&](connection& db) {
            db.notifications()->listen(channel, until);
            wire_->heard = listens_ = true;
        });
    }
    [[nodiscard]] int descriptor() const noexcept override {
        return alive() ? wire_->descriptor.load() : -1;
    }
    std::vector<notification> take() override {
        if (!alive()) throw broke_meanwhile();
        // Another user has the turn: on_used is called after it.
        if (!in_transaction_ && !wire_->try_turn()) return {};
        const turn mine{*this, true};
        return wire_->db->notifications()->take();
    }

    const std::shared_ptr<wire> wire_;
    const rank rank_;
    bool in_transaction_ = false;  ///< and the turn is ours until its end
    bool listens_ = false;
    std::uint64_t round_trips_ = 0;
};

shared_connection::shared_connection(settings how) : how_{std::move(how)} {}

shared_connection::~shared_connection() = default;

std::unique_ptr<connection> shared_connection::join(rank who, deadline until) {
    std::unique_lock lock{mutex_};
    if (!made_.wait_until(lock, until, [this] { return !connecting_; })) {
        throw error{errc::timed_out, "another call of this client is still connecting"};
    }
    if (auto existing = current_.lock(); existing && !existing->broken()) {
        return std::make_unique<user>(std::move(existing), who);
    }
    connecting_ = true;
    lock.unlock();
    std::shared_ptr<wire> made;
    try {
        made = std::make_shared<wire>(how_.connect(until), how_);
    } catch (...) {
        lock.lock();
        connecting_ = false;
        made_.notify_all();
        throw;
    }
    lock.lock();
    connecting_ = false;
    current_ = made;
    made_.notify_all();
    lock.unlock();
    return std::make_unique<user>(std::move(made), who);
}

void shared_connection::renew() noexcept {
    std::shared_ptr<wire> before;
    {
        const std::lock_guard lock{mutex_};
        before = std::exchange(current_, {}).lock();
    }
    if (!before) return;
    before->replace();
    before->tell_listeners();
}

bool shared_connection::connected() const {
    const std::lock_guard lock{mutex_};
    const auto existing = current_.lock();
    return existing && !existing->broken();
}

std::chrono::nanoseconds shared_connection::busy_for() const {
    const std::lock_guard lock{mutex_};
    const auto existing = current_.lock();
    return existing ? existing->busy_for() : std::chrono::nanoseconds{0};
}

std::size_t shared_connection::waiting() const {
    const std::lock_guard lock{mutex_};
    const auto existing = current_.lock();
    return existing ? existing->waiting() : 0;
}

}  // namespace rowlock::sql
