#include "lock/queue/waiter_rounds.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// Deadline of a statement on a connection that was idle.
constexpr auto round_deadline = 1s;

std::unique_ptr<wakeup::wakeup_source> make_source(const loop_parts& parts,
                                                   wakeup::listener& reports_to) {
    auto& context = parts.context;
    if (context.options.wake_ups == wakeup_mode::polling) {
        return std::make_unique<wakeup::wakeup_source>();
    }
    return wakeup::make_database_source(
        context.speaks(),
        {.connect = [&to = parts.connections](sql::deadline until) { return to.make(until); },
         .next_id = [&context] { return context.next_id(); },
         .reports_to = reports_to,
         .statement_timeout = context.options.statement_timeout,
         .shares_connection = context.shares_connection(),
         .listening = parts.keeper.listening()});
}

}  // namespace

waiter_rounds::waiter_rounds(const loop_parts& parts, std::function<void()> wake_loop,
                             const std::atomic<bool>& stopping)
    : parts_{parts},
      wake_loop_{std::move(wake_loop)},
      stopping_{stopping},
      link_{parts.context, parts.sessions, parts.connections},
      source_{make_source(parts_, *this)} {}

waiter_rounds::~waiter_rounds() {
    close();
    source_.reset();  // its thread uses the other parts to its end
}

void waiter_rounds::close() noexcept {
    source_->stop();
    disconnect();  // releases the wait lock, so that a sleep in the server ends
    attended_.reset();
    current_ = {};
    mail_.attend({});
}

void waiter_rounds::run() {
    using act = void (*)(waiter_rounds&);
    // Tasks that let a thread run come first. What the poll finds is done in the same round.
    constexpr std::array<act, 12> tasks{
        [](waiter_rounds& of) { of.verifier_.read_served_if_woken(); },
        [](waiter_rounds& of) { of.canceller_.give_back_unwanted(); },
        [](waiter_rounds& of) { of.canceller_.cancel_given_up(); },
        [](waiter_rounds& of) { of.canceller_.give_back_unwanted(); },
        [](waiter_rounds& of) { of.server_.find_queues_of_ended_sessions(); },
        [](waiter_rounds& of) { of.server_.check_for_waiters(); },
        [](waiter_rounds& of) { of.server_.serve_due([&of] { of.read_wakeups(); }, of.stopping_); },
        [](waiter_rounds& of) { of.verifier_.verify_due(); },
        [](waiter_rounds& of) { of.poller_.poll_if_due(); },
        [](waiter_rounds& of) { of.server_.find_queues_of_ended_sessions(); },
        [](waiter_rounds& of) { of.server_.serve_due([&of] { of.read_wakeups(); }, of.stopping_); },
        [](waiter_rounds& of) {
            of.canceller_.delete_entries_of_ended_sessions([&of] { of.read_wakeups(); },
                                                           of.stopping_);
        },
    };
    read_wakeups();
    if (parts_.registry.empty()) source_->rest();
    if (next_due() > parts_.now() && !must_listen()) return;
    connect();
    for (const auto each : tasks) {
        if (stopping_) return;
        each(*this);
        read_wakeups();
    }
}

nanoseconds waiter_rounds::next_due() const noexcept {
    constexpr nanoseconds at_once{0};
    if (parts_.registry.has_work()) return at_once;
    const nanoseconds next = parts_.tasks.next_due();
    if (parts_.registry.empty()) return next;
    return std::min({next, parts_.pacing.due(), canceller_.retry_due()});
}

void waiter_rounds::read_wakeups() {
    mail_.read(*this, parts_.now());
    source_->read(*this);
}

void waiter_rounds::attend_current() {
    if (auto ours = parts_.sessions.current()) attend(std::move(ours));
}

void waiter_rounds::attend(std::shared_ptr<session> ours) {
    if (attended_ == ours) return;
    attended_ = std::move(ours);
    current_ = {attended_->id(), {attended_, &attended_->address()}, {}};
    if (attended_->mailbox() != nullptr) current_.box = {attended_, attended_->mailbox()};
    mail_.attend(current_.box);
    verifier_.trust().start_anew();
}

void waiter_rounds::connect() {
    if (link_.is_stale()) disconnect();
    auto& db = link_.open(link_.soon());
    auto ours = parts_.sessions.current();
    const bool is_open = ours != nullptr;
    if (is_open) attend(std::move(ours));
    if (!link_.may_listen()) return;
    const auto waiting = parts_.registry.waiting_session();
    // Catches up on what was sent before we listened.
    if (source_->listen(db, is_open ? current_ : wakeup::recipient{}, waiting, link_.soon())) {
        parts_.pacing.want();
    }
}

void waiter_rounds::disconnect() noexcept {
    verifier_.trust().start_anew();
    source_->detach();
    link_.close();
}

void waiter_rounds::leave_dead_connection() {
    if (link_.get() == nullptr || link_.get()->alive()) return;
    disconnect();
    parts_.pacing.want();
}

void waiter_rounds::drop_broken_connection(const error& failure) noexcept {
    auto* const db = link_.get();
    if (db == nullptr) return;
    // The server is not a primary (any more): the next connection may reach one.
    if (failure.kind() == errc::read_only) db->discard();
    if (db->alive() && !db->discarded()) return;
    disconnect();
    parts_.connections.broke();
    parts_.pacing.want();  // to receive notifications again, too
}

bool waiter_rounds::must_listen() const noexcept {
    const auto waiting = parts_.registry.waiting_session();
    return waiting != session_id{} && source_->must_listen_for(waiting);
}

/// A poll then is for what no wake-up tells of, as a cycle, and for wake-ups that fail.
nanoseconds waiter_rounds::first_poll_after(const waiter& which) const noexcept {
    /// The next client to release the lease may be one that reaches this one in no way.
    constexpr nanoseconds least = 50ms;
    const auto latest_wait = verifier_.trust().expects(which.name);
    // After the loss of a session the loop listens for the former one until its next round.
    const bool named = source_->names_grants() && source_->listening_for() == which.ours->id();
    const nanoseconds first =
        named         ? latest_first_poll
        : latest_wait ? std::clamp<nanoseconds>(2 * *latest_wait, least, latest_first_poll)
                      : rush;
    return std::min<nanoseconds>(first, parts_.context.options.poll_interval);
}

std::size_t waiter_rounds::connections() const noexcept {
    return (link_.is_connected() ? 1u : 0u) + source_->connections();
}

bool waiter_rounds::on_message(std::string_view message, bool by_database) {
    if (attended_ && parts_.keeper.beats().accept(*attended_, message)) {
        parts_.keeper.poke();
        return true;
    }
    return verifier_.on_message(message, by_database);
}

/// On the thread that sleeps in the server, as the next two.
void waiter_rounds::on_sleep(bool again) {
    if (parts_.registry.empty()) return;
    parts_.pacing.before_sleep(parts_.now(), again);
    wake_loop_();
}

/// Reads on an idle connection of the client, as the loop's own may be waiting for a row; if there
/// is none, the loop reads with its next round.
void waiter_rounds::on_woken() noexcept {
    // A connection that has died unnoticed costs the read its whole deadline, in which nothing
    // wakes us.
    constexpr nanoseconds read_takes = 12ms;
    parts_.context.count(counter::wake_ups);
    if (parts_.registry.empty()) return;
    parts_.pacing.about_to_read(parts_.now() + read_takes);
    wake_loop_();
    try {
        if (const auto calling = parts_.connections.take_idle()) {
            const auto until = std::min<sql::deadline>(
                link_.soon(), std::chrono::steady_clock::now() + round_deadline);
            if (verifier_.read_served(**calling, until)) wake_loop_();
            if (parts_.registry.empty()) parts_.pacing.was_read();
            return;
        }
    } catch (...) {
        // Dead after all, or out of memory.
    }
    parts_.tasks.read_served();
}

void waiter_rounds::on_doubt() noexcept {
    verifier_.trust().start_anew();
    parts_.pacing.want();
    wake_loop_();
}

}  // namespace rowlock::detail
