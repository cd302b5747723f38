// What other threads call. The room's thread: room_rounds.cpp.

#include "coordination/queue/waiting_room.hpp"

#include "base/signal_blocked_thread.hpp"
#include <rowlock/sql/notifications.hpp>
#include <rowlock/timeout.hpp>

#include <algorithm>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;

/// Delays of the check for waiters after a release: it costs the releasing thread nothing, and
/// checks at about the same time share a statement. Where the release has checked as well
/// (PostgreSQL) a waiter is hardly ever left. Where it has not, a client that releases one lease
/// after the other spends a tenth of the machine on checks that find no waiter, so the one after a
/// vain check waits longer.
constexpr nanoseconds together = 1ms;
constexpr nanoseconds together_in_vain = 5ms;
constexpr nanoseconds together_again = 10ms;
/// Before the first poll of an entry in a queue that moves.
constexpr nanoseconds first_look = 250ms;

}  // namespace

waiting_room::waiting_room(const surroundings& with)
    : context_{with.context},
      sessions_{with.sessions},
      connections_{with.connections},
      grants_{with.grants},
      keeper_{with.keeper},
      contended_{with.contended},
      owner_{with.owner},
      options_{context_.options},
      queue_{context_.queues},
      alarm_{clock_},
      pacing_{options_.poll_interval},
      in_cluster_{context_.speaks() == sql::dialect::mysql},
      may_listen_{options_.wake_ups != wakeup_mode::polling},
      // The sleep would block the heartbeat on a shared connection, and the KILL might hit it.
      may_sleep_{may_listen_ && !context_.shares_connection()} {
    if (options_.time) subscription_ = options_.time->on_advance([this] { look_at_all(); });
    try {
        thread_ = base::signal_blocked_thread([this] { run(); });
    } catch (const std::system_error&) {
        throw error{errc::out_of_resources,
                    "no thread could be started to look after waiters: raise the limit (ulimit "
                    "-u)"};
    }
}

waiting_room::~waiting_room() {
    subscription_.reset();
    stop();
    if (thread_.joinable()) thread_.join();
    disconnect();  // opens the gate, so that the sleeper ends
    mysql_wait_thread_.reset();
}

std::shared_ptr<turn> waiting_room::expect(std::string name, std::int64_t grant_id,
                                           std::shared_ptr<session> ours, std::string thread,
                                           bool has_deadline) {
    auto made = std::make_shared<turn>(std::move(name), grant_id, std::move(ours),
                                       std::move(thread), has_deadline);
    const guard lock{mutex_};
    turns_.emplace(grant_id, made);
    if (closing_) {
        const error closed{errc::lock_lost, "the client is closed"};
        end(*made, turn::state::failed, &closed);
    }
    return made;
}

void waiting_room::enqueued(const std::shared_ptr<turn>& which) {
    const guard lock{mutex_};
    if (which->over()) return;
    which->now = turn::state::waiting;
    if (which->contended) return;  // wait() orders the poll
    pacing_.want();
    poke();
}

bool waiting_room::withdraw(const std::shared_ptr<turn>& which) {
    const guard lock{mutex_};
    turns_.erase(which->grant_id);
    if (which->now == turn::state::served) return false;
    which->now = turn::state::cancelled;
    return true;
}

bool waiting_room::wait(const std::shared_ptr<turn>& which, steady::time_point until,
                        const std::stop_token& stop) {
    constexpr auto patience = 40ms;
    const auto over = [&] { return which->over(); };
    // A notified waiter polls only for what is never notified: a dead holder, a cycle.
    const bool later = which->contended && hears_ && !which->holds_others;
    if (later) report_place(*which, 0);
    guard lock{mutex_};
    const auto end = std::min(until, steady::now() + longest_wait);
    if (which->contended) {
        const auto over_soon =
            std::min<steady::time_point>(end, steady::now() + (later ? first_look : rush));
        if (which->changed.wait_until(lock, stop, over_soon, over)) return true;
        pacing_.want();
        poke();
    }
    if (which->changed.wait_until(lock, stop, end, over)) return true;
    which->giving_up = true;
    cancels_.push_back(which);
    if (cancels_.size() == 1) poke();
    if (which->changed.wait_for(lock, patience, over)) return true;
    which->left = true;
    return false;
}

void waiting_room::leave(turn& which) noexcept {
    {
        const guard lock{mutex_};
        which.giving_up = which.left = true;
        if (!which.over()) {
            forgotten_ = true;
            return poke();
        }
        if (which.now != turn::state::served) return;
    }
    grants_.give_back(*which.granted);
}

void waiting_room::report_place(const turn& which, std::int64_t position) {
    if (!options_.on_event) return;
    context_.report(
        {.kind = event_kind::waiting,
         .name = which.name,
         .session = which.ours->id(),
         .position = position,
         .waited = std::chrono::duration_cast<microseconds>(steady::now() - which.since)});
}

void waiting_room::handed_over(const strategy::handed_over& next) {
    std::shared_ptr<turn> which;
    {
        const guard lock{mutex_};
        const auto found = turns_.find(next.grant_id);
        if (found == turns_.end()) return;  // it was reported already, or is to be given back
        which = found->second;
        if (which->has_deadline) {
            told_.push_back({which, nullptr, next.token, now()});
            poke();
            return;
        }
    }
    serve(which, next.token, context_.now(), std::nullopt);
    if (!hears_) return;
    const guard lock{mutex_};
    if (!which->granted) return;
    told_.push_back({which, which->granted, next.token, now() + rush, true});
    poke();
}

void waiting_room::look(std::string_view name) {
    const guard lock{mutex_};
    const nanoseconds at = now() + look_together();
    // Most often another name has just been released.
    const bool poked = looks_.next_due() <= at;
    looks_.plan(std::string{name}, {at});
    if (!poked) poke();
}

/// With the mutex held.
nanoseconds waiting_room::look_together() const {
    if (context_.speaks() == sql::dialect::postgresql) return together_again;
    return now() < vain_look_ + together_again ? together_in_vain : together;
}

void waiting_room::look_for_a_while(std::string_view name) {
    constexpr int looks = 9;  // the last one after a second
    const guard lock{mutex_};
    looks_.plan(std::string{name}, {now() + 2ms, 2ms, looks});
    poke();
}

void waiting_room::session_ended(std::int64_t id) {
    const guard lock{mutex_};
    ended_.push_back(id);
    poke();
}

void waiting_room::session_lost(std::int64_t id, loss_reason why) noexcept {
    std::optional<error> over;
    try {
        over.emplace(errc::lock_lost, "the session ended while waiting (" +
                                          std::string{to_string(why)} +
                                          "): the place in the queue is gone; ask again");
    } catch (...) {
        // No memory for the message.
    }
    const guard lock{mutex_};
    for (auto next = turns_.begin(); next != turns_.end();) {
        const auto which = (next++)->second;
        if (which->ours->id() != id) continue;
        which->ours->grants().forget(which->grant_id);
        end(*which, turn::state::failed, over ? &*over : nullptr);
    }
}

void waiting_room::fail(const error& failure, std::optional<std::string_view> name) {
    std::vector<std::shared_ptr<turn>> all;
    {
        const guard lock{mutex_};
        for (const auto& [grant_id, each] : turns_) {
            if (!name || each->name == *name) all.push_back(each);
        }
        for (const auto& each : all) end(*each, turn::state::failed, &failure);
    }
    for (const auto& each : all) grants_.give_back(*each->ours, each->name, each->grant_id);
}

void waiting_room::look_at_all() noexcept {
    const guard lock{mutex_};
    pacing_.want();
    poke();
}

std::size_t waiting_room::waiting() const {
    const guard lock{mutex_};
    return static_cast<std::size_t>(
        std::ranges::count_if(turns_, [](const auto& each) { return !each.second->left; }));
}

std::size_t waiting_room::connections() const {
    const guard lock{mutex_};
    return (connected_ ? 1u : 0u) +
           (mysql_wait_thread_ && mysql_wait_thread_->connected() ? 1u : 0u);
}

void waiting_room::stop() noexcept {
    stopping_ = true;
    poke();
}

waiting_room::leftovers waiting_room::close() noexcept {
    subscription_.reset();
    stop();
    if (thread_.joinable()) thread_.join();
    if (mysql_wait_thread_) mysql_wait_thread_->stop();
    disconnect();
    mail_for_.reset();
    leftovers rest;
    std::optional<error> over;
    const guard lock{mutex_};
    closing_ = true;
    try {
        over.emplace(errc::lock_lost, "the client was destroyed while waiting");
        for (const auto& [grant_id, each] : turns_) rest.places.push_back(grant_id);
        for (const auto& [name, when] : hand_on_) rest.names.push_back(name);
        for (const auto& [name, when] : looks_) rest.names.push_back(name);
        rest.sessions = std::move(ended_);
    } catch (...) {
        // No memory: other clients' polls find what is left.
    }
    while (!turns_.empty()) {
        const auto which = turns_.begin()->second;
        end(*which, turn::state::failed, over ? &*over : nullptr);
    }
    cancels_.clear();
    unwanted_.clear();  // they end with the session
    return rest;
}

/// Makes the grant, so that a comparison with the database knows it from now on, and notifies its
/// thread. If that thread has left, the room's thread gives the grant back in its next step: the
/// heartbeat would take several more round trips.
/// @param sent when the statement was sent that read what is left of the lease's own deadline
void waiting_room::serve(const std::shared_ptr<turn>& which, std::int64_t token, nanoseconds sent,
                         std::optional<std::int64_t> deadline_us) {
    {
        const guard lock{mutex_};
        if (which->over()) return;
        std::optional<microseconds> deadline;
        if (deadline_us) deadline = microseconds{*deadline_us};
        which->granted = grants_.make(*which->ours, which->name, which->grant_id, token, sent,
                                      deadline, which->thread);
        which->granted->queued = true;
        end(*which, turn::state::served);
        if (!which->left) return;
        try {
            unwanted_.push_back(which->granted);
            return poke();
        } catch (const std::bad_alloc&) {
            // The heartbeat gives it back.
        }
    }
    grants_.give_back(*which->granted);
}

/// With the mutex held.
void waiting_room::end(turn& which, turn::state how, const error* why) noexcept {
    which.now = how;
    try {
        if (why != nullptr) which.failure.emplace(*why);
    } catch (...) {
        // No memory: the turn ends without the reason.
    }
    turns_.erase(which.grant_id);
    which.changed.notify_all();
}

}  // namespace rowlock::detail
