// The rounds of the waiting room's thread. Each task takes what is due from its list and puts back
// what could not be done.

#include "base/ablation.hpp"
#include "coordination/queue/waiting_room.hpp"
#include "coordination/queue/wake.hpp"
#include "coordination/wakeup/wake_up.hpp"
#include "sql/brief_wait.hpp"
#include "sql/pooler.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/sql/notifications.hpp>

#include <algorithm>
#include <array>
#include <ranges>

namespace rowlock::detail {
namespace {

using namespace std::chrono_literals;
using base::alarm;
using std::chrono::milliseconds;

/// Deadline of a statement on a connection that was idle.
constexpr auto idle_deadline = 1s;
/// A cycle must persist this long before a victim is chosen: in-flight cancels settle by then,
/// unless the database is much slower than usual.
constexpr nanoseconds circle_stands = 100ms;
/// Limits the reads of notifications in a row; each takes all that have arrived.
constexpr int most_takes = 16;
/// A client that has not waited for this long ignores what others commit.
constexpr nanoseconds idle = 50ms;

}  // namespace

void waiting_room::run() noexcept {
    while (!stopping_) {
        nanoseconds next = step();
        // From now on the session's mail is read, whether or not a thread waits.
        if (auto ours = sessions_.current()) hear_for(std::move(ours));
        const auto* const mailbox = mail_for_ ? mail_for_->mailbox() : nullptr;
        const bool deaf = mailbox != nullptr && now() < deaf_until_;
        if (deaf) next = std::min(next, deaf_until_);
        std::array<pollfd, 2> ears{
            {{notifications_ != nullptr ? notifications_->descriptor() : -1, POLLIN, 0},
             {mailbox != nullptr && !deaf ? mailbox->descriptor() : -1, POLLIN, 0}}};
        if (!stopping_) alarm_.wait_until(next, ears);
    }
}

/// Returns when the next step is due.
nanoseconds waiting_room::step() noexcept {
    try {
        leave_dead_connection();
        if (pauses_idly_ && !is_idle()) retry_at_ = {};
        if (now() < retry_at_) {
            hear();
            return retry_at_;
        }
        make_rounds();
        failures_ = 0;
        return next_moment();
    } catch (const error& failure) {
        return after_failure(failure);
    } catch (const std::exception& failure) {
        try {
            return after_failure(error{errc::out_of_resources, failure.what()});
        } catch (...) {
            return now() + 100ms;
        }
    }
}

void waiting_room::make_rounds() {
    hear();
    if (mysql_wait_thread_ && is_idle()) mysql_wait_thread_->pause();
    if (next_moment() > now() && !is_deaf()) return;
    connect();
    // Tasks that let a thread run come first. What the poll finds is done in the same round.
    for (const auto task :
         {&waiting_room::read_served_if_woken, &waiting_room::give_back_unwanted,
          &waiting_room::cancel_places, &waiting_room::give_back_unwanted,
          &waiting_room::ask_after_sessions, &waiting_room::look_for_waiters,
          &waiting_room::hand_on_due, &waiting_room::verify_told, &waiting_room::poll,
          &waiting_room::ask_after_sessions, &waiting_room::hand_on_due}) {
        if (stopping_) return;
        (this->*task)();
        hear();
    }
}

/// Another call found the shared connection broken, or replaced it: no notification arrives there
/// any more, and after the LISTEN on the next one a poll is needed.
void waiting_room::leave_dead_connection() {
    if (!db_ || db_->alive()) return;
    disconnect();
    const guard lock{mutex_};
    pacing_.want();
}

/// PostgreSQL: on a shared connection the room listens for holders, too, whether or not a thread
/// waits.
bool waiting_room::is_deaf() const {
    if (!context_.shares_connection() || !may_listen_) return false;
    if (context_.speaks() != sql::dialect::postgresql) return false;
    const auto ours = sessions_.current();
    return ours && (!db_ || listening_for_ != ours->id());
}

nanoseconds waiting_room::next_moment() {
    constexpr nanoseconds at_once{0};
    const guard lock{mutex_};
    if (woken_ || !cancels_.empty() || forgotten_ || !ended_.empty() || !unwanted_.empty()) {
        return at_once;
    }
    nanoseconds next = alarm::never;
    for (const auto& each : told_) next = std::min(next, each.at);
    next = std::min({next, hand_on_.next_due(), looks_.next_due()});
    if (turns_.empty()) return next;
    return std::min(next, pacing_.due());
}

/// A failure is no answer: unfinished tasks are still on their lists. Waiting threads receive only
/// errors that no repetition mends; a server that is away for a while costs them time, as long as
/// their session lives.
nanoseconds waiting_room::after_failure(const error& failure) noexcept {
    if (failures_++ == 0) failing_since_ = now();
    try {
        hear();  // notifications that the failed statement has read
    } catch (...) {
        // The connection turns out to be closed below; without memory they are read later.
    }
    // The server is no primary (any more): the next connection may reach one.
    if (db_ && failure.kind() == errc::read_only) db_->discard();
    if (db_ && (!db_->alive() || db_->discarded())) {
        disconnect();
        connections_.broke();
        const guard lock{mutex_};
        pacing_.want();  // to receive notifications again, too
    }
    const bool passes = failure.retryable() || failure.kind() == errc::outcome_unknown ||
                        failure.kind() == errc::read_only;
    try {
        if (!passes) {
            {
                const guard lock{mutex_};
                looks_.clear();  // the waiters poll for themselves
            }
            fail(failure);
        }
        const auto elapsed = std::chrono::duration_cast<milliseconds>(now() - failing_since_);
        // Waiting threads were promised a poll in each poll_interval.
        pauses_idly_ = is_idle();
        const nanoseconds longest =
            std::max<nanoseconds>(pauses_idly_ ? options_.heartbeat : options_.poll_interval, 5ms);
        const auto after_all = pauses_idly_ ? longest : nanoseconds{options_.retry.max_backoff};
        const auto pause = options_.retry.next(failure, failures_, elapsed);
        retry_at_ =
            now() + std::clamp<nanoseconds>(pause ? nanoseconds{*pause} : after_all, 5ms, longest);
    } catch (...) {
        retry_at_ = now() + 1s;
    }
    return retry_at_;
}

void waiting_room::connect() {
    if (db_ && (!db_->alive() || db_->discarded() || sessions_.leads_elsewhere(*db_))) disconnect();
    const auto until = soon();
    if (!db_) {
        db_ = connections_.make(until);
        connected_ = true;
    }
    if (!is_set_up_) {
        set_up(until);
        is_set_up_ = true;
    }
    if (const auto ours = sessions_.current()) {
        hear_for(ours);
        listen(*ours);
    }
    let_sleep();
}

void waiting_room::disconnect() noexcept {
    notifications_ = nullptr;
    listening_for_ = 0;
    hears_ = false;
    db_.reset();  // opens the gate
    gate_ = 0;
    connected_ = is_set_up_ = false;
}

void waiting_room::set_up(sql::deadline until) {
    const bool postgresql = db_->speaks() == sql::dialect::postgresql;
    in_cluster_ = db_->speaks() == sql::dialect::mysql &&
                  sql::facts_of(*db_, until).member_of != sql::cluster::none;
    if (!db_->keeps_session_state()) {
        may_listen_ = may_listen_ && !postgresql;
        return;
    }
    if (postgresql && may_listen_ && !pooler_known_) {
        // An undeclared pooler: our session state would apply to other clients, and notifications
        // on their connections would be lost to us.
        const auto seen = sql::pooling_of(*db_, context_.source, until);
        if (seen == sql::pooling::transaction) may_listen_ = false;
        pooler_known_ = true;
    }
    if (!postgresql || may_listen_ || !pooler_known_) {
        strategy::set_short_lock_timeout(*db_, until);
    }
}

void waiting_room::listen(const session& ours) {
    if (!may_listen_ || listening_for_ == ours.id()) return;
    auto* const capability = db_->notifications();
    try {
        if (capability == nullptr) throw error{errc::unsupported, "no notifications"};
        capability->listen(strategy::notification_channel(ours.address()), soon());
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        may_listen_ = false;
        return;
    }
    notifications_ = capability;
    listening_for_ = ours.id();
    hears_ = db_->speaks() == sql::dialect::postgresql;
    // Catches up on what was sent before we listened, to waiters and to holders.
    if (context_.shares_connection() && ours.grants().leases() > 0) keeper_.reconcile_now();
    const guard lock{mutex_};
    pacing_.want();
}

void waiting_room::hear_for(std::shared_ptr<session> ours) {
    if (mail_for_ == ours) return;
    mail_for_ = std::move(ours);
    told_by_name_ = false;
    deaf_until_ = {};
}

/// Where the database cannot notify, a second thread sleeps in the server.
void waiting_room::let_sleep() {
    if (db_->speaks() != sql::dialect::mysql || !may_sleep_) return;
    std::int64_t session = 0;
    {
        const guard lock{mutex_};
        if (!turns_.empty()) session = turns_.begin()->second->ours->id();
    }
    if (session == 0 || !shut_gate_for(session)) return;
    if (!mysql_wait_thread_) {
        try {
            auto made = std::make_unique<mysql_wait_thread>(mysql_wait_thread::surroundings{
                .connect = [this](sql::deadline until) { return connections_.make(until); },
                .on_sleep = [this](bool again) { before_sleep(again); },
                .on_woken = [this] { woken(); },
                .on_doubt = [this] { look_at_all(); },
                .on_broken = [this] { connections_.broke(); },
                .statement_timeout = options_.statement_timeout});
            const guard lock{mutex_};
            mysql_wait_thread_ = std::move(made);
        } catch (const std::system_error&) {
            may_sleep_ = false;  // no thread: frequent polls replace it
            return;
        }
    }
    mysql_wait_thread_->sleep_for(session, gate_);
}

/// One gate for each session and each connection of ours: a sleep for another session, or before
/// the gate of a connection that is gone, ends at once.
bool waiting_room::shut_gate_for(std::int64_t session) {
    namespace wake_up = strategy::wake_up;
    if (gate_ != 0 && gate_session_ == session) return true;
    if (gate_ != 0) wake_up::open_gate(*db_, std::exchange(gate_, 0), soon());
    const auto next = context_.next_id();
    if (!wake_up::shut_gate(*db_, next, soon())) {
        may_sleep_ = false;
        return false;
    }
    gate_ = next;
    gate_session_ = session;
    return true;
}

/// On the sleeper's thread.
void waiting_room::before_sleep(bool again) {
    const guard lock{mutex_};
    if (turns_.empty()) return;
    pacing_.before_sleep(now(), again);
    poke();
}

/// On the wait thread. Reads on an idle connection of the client, as the room's own may be waiting
/// for a row; if there is none, the room's thread reads with its next step.
void waiting_room::woken() noexcept {
    // A connection that has died unnoticed costs the read its whole deadline, in which nothing
    // wakes us. Most often another poll is due before this one, and replaces it.
    constexpr nanoseconds read_takes = 12ms;
    context_.count(counter::wake_ups);
    {
        const guard lock{mutex_};
        if (turns_.empty()) return;
        pacing_.no_later_than(now() + read_takes);
        poke();
    }
    try {
        if (const auto calling = connections_.take_idle()) {
            return read_served(**calling,
                               std::min<sql::deadline>(soon(), steady::now() + idle_deadline));
        }
    } catch (...) {
        // Dead after all, or out of memory.
    }
    const guard lock{mutex_};
    woken_ = true;
    poke();
}

void waiting_room::read_served_if_woken() {
    {
        const guard lock{mutex_};
        if (!std::exchange(woken_, false)) return;
    }
    try {
        read_served(*db_, soon());
    } catch (...) {
        look_at_all();  // what is really wrong the poll finds
        if (!db_->alive()) throw;
    }
}

/// Reads which of our entries were served, after a wake-up that does not say so.
void waiting_room::read_served(sql::connection& db, sql::deadline until) {
    constexpr std::size_t many = 64;
    std::int64_t session = 0;
    std::vector<std::string> names;
    std::unordered_map<std::int64_t, std::shared_ptr<turn>> standing;
    {
        const guard lock{mutex_};
        for (const auto& [grant_id, each] : turns_) {
            if (session == 0) session = each->ours->id();
            if (each->ours->id() != session) continue;
            names.push_back(each->name);
            standing.emplace(grant_id, each);
        }
    }
    if (names.empty()) return;
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() > many) {
        // One poll of all entries costs less than to ask for so many names. The wake-up may have
        // come before the commit: a poll comes after it if we have read behind it first.
        names.resize(1);
        (void)queue_.served_of(db, session, names, until);
        return look_at_all();
    }
    const nanoseconds sent = context_.now();
    auto served = queue_.served_of(db, session, names, until);
    // Some grants were held before.
    std::erase_if(served, [&](const auto& each) { return !standing.contains(each.grant_id); });
    // The grant we were woken for is most often known to be durable; the wake-up may have come amid
    // the commit of another hand-over.
    std::vector<strategy::served_place> doubtful;
    for (const auto& each : served) {
        if (!each.durable) {
            doubtful.push_back(each);
        } else {
            serve(standing.at(each.grant_id), each.granted.token, sent, each.granted.deadline_us);
        }
    }
    if (doubtful.empty()) return;
    const guard lock{mutex_};
    for (const auto& each : doubtful) {
        told_.push_back({standing.at(each.grant_id), nullptr, 0, now(), true});
    }
    poke();
}

/// Reads mail and notifications, also those that arrived while statements ran.
void waiting_room::hear() {
    read_mail();
    if (notifications_ == nullptr || !db_->alive()) return;
    const bool watches = db_->speaks() == sql::dialect::sqlite;
    // Others may send faster than we read: the rest is read the next time.
    for (int some = 0; some < most_takes; ++some) {
        const auto all = notifications_->take();
        if (all.empty()) return;
        for (const auto& said : all) {
            if (watches) {
                changed();
            } else {
                heard(said.payload, true);
            }
        }
    }
}

/// Needs no database: works also while the database is away.
void waiting_room::read_mail() {
    if (!mail_for_ || mail_for_->mailbox() == nullptr || now() < deaf_until_) return;
    // Mail is sent once the commit was confirmed, with a proof. A client that may read an SQLite
    // file need not be allowed to write it: there the row is read. And our node of a cluster may
    // show only later what was committed on another, and the grant would be refuted.
    const bool believed = context_.speaks() != sql::dialect::sqlite && !in_cluster_;
    const auto mail = mail_for_->mailbox()->take();
    bool useful = false;
    for (const auto& text : mail) useful = heard(text, believed) || useful;
    if (!useful && mail.size() >= wakeup::mailbox::flood) {
        deaf_until_ = now() + wakeup::mailbox::rest_from_flood;
    }
}

/// Something was committed to the SQLite file.
void waiting_room::changed() {
    if (is_idle() && now() - round_.began > idle) return notifications_->want_changes(false);
    const guard lock{mutex_};
    pacing_.after_commit(round_.found.best_position);
}

/// Ignores a message without a proof: every local user may write to our mailbox, every role of the
/// database to our channel. Returns false if the message was of no use.
/// @param believed whether a proof is enough, or the row is to be read
bool waiting_room::heard(std::string_view said, bool believed) {
    if (mail_for_ && keeper_.beats().accept(*mail_for_, said)) {
        keeper_.poke();
        return true;
    }
    const auto next = strategy::decode_wakeup(said);
    if (!next) return false;
    std::shared_ptr<turn> which;
    {
        const guard lock{mutex_};
        const auto found = turns_.find(next->grant_id);
        if (found == turns_.end()) return false;
        which = found->second;
    }
    if (!strategy::is_proved(said, which->ours->address().secret)) return false;
    context_.count(counter::wake_ups);
    told_by_name_ = true;
    // The transaction that wrote the grant sent this, delivered after its commit, or it was sent
    // after that: durable, or keeping a promise that was. So the grant is believed, and then
    // verified. The message does not contain a deadline: with one, the row is read first.
    if (believed && !which->has_deadline) serve(which, next->token, context_.now(), std::nullopt);
    const guard lock{mutex_};
    told_.push_back({which, which->granted, next->token, which->granted ? now() + rush : now(),
                     next->asynchronous});
    return true;
}

void waiting_room::cancel_places() {
    std::vector<std::shared_ptr<turn>> given_up;
    {
        const guard lock{mutex_};
        if (forgotten_) {
            for (const auto& [grant_id, each] : turns_) {
                if (each->giving_up) given_up.push_back(each);
            }
            forgotten_ = false;
            cancels_.clear();
        } else {
            given_up = std::exchange(cancels_, {});
            std::erase_if(given_up, [](const auto& each) { return each->over(); });
        }
    }
    if (given_up.empty()) return;
    try {
        std::vector<std::int64_t> ids;
        for (const auto& each : given_up) ids.push_back(each->grant_id);
        const auto deleted = queue_.cancel(*db_, ids, write_deadline());
        patience_ = strategy::brief;
        while (!given_up.empty()) {
            const auto& last = given_up.back();
            answer_cancelled(last, std::ranges::find(deleted, last->grant_id) != deleted.end());
            given_up.pop_back();
        }
    } catch (...) {
        be_more_patient();
        const guard lock{mutex_};
        forgotten_ = true;  // all that are left, without memory for a list
        throw;
    }
}

bool waiting_room::has_left(const turn& which) const {
    const guard lock{mutex_};
    return which.left;
}

bool waiting_room::is_over(const turn& which) const {
    const guard lock{mutex_};
    return which.over();
}

bool waiting_room::is_idle() const {
    const guard lock{mutex_};
    return turns_.empty();
}

/// After a task that writes exceeded its time.
void waiting_room::be_more_patient() noexcept {
    patience_ = std::min<nanoseconds>(2 * patience_, options_.statement_timeout);
}

/// Hands a grant that served a thread that had left to the next waiter. Returns false if there is
/// no such grant, or its row is locked.
bool waiting_room::hand_on_served(const std::string& name, std::int64_t session,
                                  std::int64_t grant_id) {
    try {
        const auto done = queue_.release(*db_, name, session, grant_id, true, write_deadline());
        patience_ = strategy::brief;
        if (done.freed) owner_.after_release(*db_, name, done, soon());
        return done.freed;
    } catch (const error& failure) {
        if (!strategy::is_locked(*db_, failure)) throw;
        be_more_patient();
        return false;
    }
}

void waiting_room::give_back_unwanted() {
    std::vector<std::shared_ptr<grant>> all;
    {
        const guard lock{mutex_};
        all.swap(unwanted_);
    }
    while (!all.empty()) {
        const auto granted = all.back();
        all.pop_back();
        // The grant stays known here until it is freed, or the heartbeat has it on its list: a
        // comparison with the database in between finds nothing to give back.
        try {
            if (hand_on_served(granted->name, granted->session_id, granted->grant_id)) {
                granted->now = grant::state::released;
                grants_.forget(*granted);
                continue;
            }
        } catch (...) {
            grants_.give_back(*granted);
            for (const auto& rest : all) grants_.give_back(*rest);
            throw;
        }
        grants_.give_back(*granted);
    }
}

/// An entry that is gone was served, unless another client deleted it. If its thread has left, the
/// lease goes on to the next waiter at once, and other clients find it held no longer than the
/// round trips of this client make it.
void waiting_room::answer_cancelled(const std::shared_ptr<turn>& which, bool deleted) {
    // Served meanwhile by another thread: its own thread has the grant, or it is unwanted.
    if (is_over(*which)) return;
    if (!deleted && has_left(*which)) {
        deleted = hand_on_served(which->name, which->ours->id(), which->grant_id);
    } else if (!deleted) {
        const nanoseconds sent = context_.now();
        const auto granted =
            queue_.served(*db_, which->name, which->ours->id(), which->grant_id, soon());
        if (granted) return serve(which, granted->token, sent, granted->deadline_us);
    }
    const guard lock{mutex_};
    // Served by another thread meanwhile. If the grant was given back above, nothing is left to do.
    if (which->over()) {
        if (deleted && std::erase(unwanted_, which->granted) > 0) {
            which->granted->now = grant::state::released;
            grants_.forget(*which->granted);
        }
        return;
    }
    if (deleted) {
        which->ours->grants().forget(which->grant_id);
    } else {
        grants_.give_back(*which->ours, which->name, which->grant_id);
    }
    end(*which, turn::state::cancelled);
    context_.count(counter::cancelled);
    // A grant_next may have chosen it and found it gone.
    looks_.plan(which->name, {now()});
}

void waiting_room::ask_after_sessions() {
    for (;;) {
        std::int64_t ended = 0;
        {
            const guard lock{mutex_};
            if (ended_.empty()) return;
            ended = ended_.back();
        }
        const auto names = queue_.queues_of_session(*db_, ended, soon());
        const guard lock{mutex_};
        std::erase(ended_, ended);
        for (const auto& name : names) hand_on_.plan(name, {now()});
    }
}

std::vector<std::pair<std::string, task>> waiting_room::take_due(task_list& list) {
    const guard lock{mutex_};
    return list.take_due(now());
}

void waiting_room::look_for_waiters() {
    const auto looks = take_due(looks_);
    if (looks.empty()) return;
    std::vector<std::string> names;
    for (const auto& [name, when] : looks) names.push_back(name);
    try {
        // A look counts after the commit of the release; this one may only have been sent.
        if (!connections_.drain_pipelined(nullptr, soon())) {
            throw error{errc::timed_out, "a release that was sent has not been answered yet"};
        }
        const auto names_with_waiters = queue_.names_with_waiters(*db_, names, soon());
        for (const auto& name : names_with_waiters) contended_.note(name);
        const guard lock{mutex_};
        if (names_with_waiters.empty()) vain_look_ = now();
        for (const auto& name : names_with_waiters) hand_on_.plan(name, {now()});
        for (const auto& [name, when] : looks) looks_.repeat(name, when, now());
    } catch (...) {
        const guard lock{mutex_};
        for (const auto& [name, when] : looks) looks_.plan(name, when);
        throw;
    }
}

void waiting_room::hand_on_due() {
    auto names = take_due(hand_on_);
    while (!names.empty()) {
        const auto name = names.back().first;
        auto& when = names.back().second;
        try {
            if (!stopping_) hand_on(name);
            patience_ = strategy::brief;
        } catch (...) {
            const bool busy = is_busy();
            be_more_patient();
            // Another transaction has the row. The room neither waits there nor forgets the name.
            when = when.postponed(now());
            const guard lock{mutex_};
            if (!busy) {
                for (const auto& [rest, its] : names) hand_on_.plan(rest, its);
                throw;
            }
            hand_on_.plan(name, when);
        }
        names.pop_back();
        hear();
    }
}

/// Within a handler: whether the caught error says no more than that a row is locked.
bool waiting_room::is_busy() const {
    try {
        throw;
    } catch (const error& failure) {
        return strategy::is_locked(*db_, failure);
    } catch (...) {
        return false;
    }
}

void waiting_room::hand_on(const std::string& name) {
    const auto next = queue_.grant_next(*db_, name, write_deadline());
    if (!next) return;
    handed_over(*next);
    wake(context_, sessions_, *db_, *next, soon());
}

void waiting_room::verify_told() {
    for (;;) {
        told one;
        {
            const guard lock{mutex_};
            const auto next =
                std::ranges::find_if(told_, [&](const told& each) { return each.at <= now(); });
            if (next == told_.end()) return;
            one = *next;
        }
        // A grant that was released meanwhile needs no check, nor does a waiter that is over.
        const bool matters =
            one.granted ? one.granted->now == grant::state::held : !is_over(*one.which);
        if (matters) verify(one);
        const guard lock{mutex_};
        std::erase_if(told_, [&](const told& each) { return each.which == one.which; });
    }
}

void waiting_room::verify(const told& one) {
    const nanoseconds sent = context_.now();
    const auto settle = [&](sql::connection& db, sql::deadline until) {
        return queue_.settle(db, one.which->name, one.which->ours->id(), one.which->grant_id,
                             one.durably, until);
    };
    // On the connection that will most likely send the release, too, whose server process then has
    // everything at hand. It may have died while it was idle: the room does not wait long to find
    // out.
    const auto found = [&]() -> std::optional<strategy::settled_grant> {
        if (!hears_ && !one.granted) {  // its remaining deadline is needed
            const auto granted = queue_.served(*db_, one.which->name, one.which->ours->id(),
                                               one.which->grant_id, soon(), one.token);
            if (!granted) return std::nullopt;
            return strategy::settled_grant{*granted, std::nullopt};
        }
        if (hears_) {
            if (const auto calling = connections_.take_idle()) {
                return settle(**calling,
                              std::min<sql::deadline>(soon(), steady::now() + idle_deadline));
            }
        }
        return settle(*db_, soon());
    }();
    if (!one.granted) {
        if (found) return serve(one.which, found->granted.token, sent, found->granted.deadline_us);
        if (!in_cluster_) return;
        const guard lock{mutex_};
        pacing_.no_later_than(now() + poll_pacing::replicated_within);
        return;
    }
    if (!found || found->granted.token != one.token)
        return static_cast<void>(grants_.deny(*one.granted));
    if (!found->next || !uses(base::fast_path::prefetched_next)) return;
    const std::lock_guard lock{one.granted->mutex};
    one.granted->next = found->next;
    one.granted->next_until = sent + found->next->alive;
}

/// Polls all queues that we are in.
void waiting_room::poll() {
    constexpr std::size_t few = 64;  // entries, to be read one by one
    std::vector<std::shared_ptr<turn>> standing;
    nanoseconds began{0};
    {
        const guard lock{mutex_};
        if (turns_.empty() || pacing_.due() > now()) return;
        for (const auto& [grant_id, each] : turns_) {
            if (each->now == turn::state::waiting && !each->giving_up) standing.push_back(each);
        }
        began = now();
        pacing_.begin_poll(began);
    }
    auto seen_before = std::exchange(round_, {});
    round_.began = began;
    round_.whole = standing.size() > few || began >= whole_poll_at_;
    if (round_.whole) whole_poll_at_ = began + options_.poll_interval;
    (round_.whole ? strays_ : round_.strays) = std::move(seen_before.strays);
    try {
        // All are of one session, except while one is being lost.
        while (!standing.empty()) {
            const auto ours = standing.front()->ours;
            // Not that of std::ranges: clang 14 cannot compile what it returns.
            const auto others =
                std::stable_partition(standing.begin(), standing.end(),
                                      [&](const auto& each) { return each->ours == ours; });
            poll(ours, {standing.begin(), others});
            standing.erase(standing.begin(), others);
        }
    } catch (...) {
        const guard lock{mutex_};
        pacing_.want();
        throw;
    }
    plan_next_poll();
    stop_watching();
}

void waiting_room::poll(const std::shared_ptr<session>& ours,
                        const std::vector<std::shared_ptr<turn>>& standing) {
    if (!ours->trust()->open(context_.now())) {
        sessions_.lose(*ours, loss_reason::trust_window_passed);
        return session_lost(ours->id(), loss_reason::trust_window_passed);
    }
    std::vector<std::int64_t> ids;
    for (const auto& each : standing) ids.push_back(each->grant_id);
    const auto seen = round_.whole ? queue_.places_of(*db_, ours->id(), soon())
                                   : queue_.places_at(*db_, ours->id(), ids, soon());
    context_.count(counter::polls);
    if (!seen.session_live) {
        const auto why = sessions_.why_over(*ours, *db_, soon());
        sessions_.lose(*ours, why);
        return session_lost(ours->id(), why);
    }
    std::unordered_map<std::int64_t, const strategy::place*> places;
    for (const auto& each : seen.waiting) {
        places.emplace(each.grant_id, &each);
        look_after(each, *ours);
    }
    std::vector<std::shared_ptr<turn>> missing;
    for (const auto& each : standing) {
        const auto found = places.find(each->grant_id);
        if (found == places.end()) {
            missing.push_back(each);
        } else {
            see(each, *found->second);
        }
    }
    ask_after(*ours, std::move(missing));
    look_for_deadlocks(*ours, standing);
}

/// Acts on what our entry shows of its lease and its holder.
void waiting_room::look_after(const strategy::place& at, session& ours) {
    if (!ours.grants().knows(at.grant_id)) {
        // Over since this was read; or an insertion that came late, for which no thread waits: then
        // the next poll finds it, too.
        if (ours.grants().is_unresolved(at.grant_id)) return;
        round_.strays.insert(at.grant_id);
        if (strays_.contains(at.grant_id)) grants_.give_back(ours, at.name, at.grant_id);
        return;
    }
    if (at.holder_expired) {
        // Ended first, in a commit of its own; only then may the lease row change (I3).
        if (context_.leases.end_expired_session(*db_, at.holder_session, write_deadline())) {
            const guard lock{mutex_};
            ended_.push_back(at.holder_session);
        }
    }
    // Entries come in the order of their tickets: the first of a name covers the others.
    if (at.behind_watermark && round_.rewound.insert(at.name).second) reset_watermark(at);
    const guard lock{mutex_};
    if (at.free || at.holder_expired || at.behind_watermark) hand_on_.plan(at.name, {now()});
    if (at.remaining > 0us) {
        round_.found.holder_expires(round_.began + at.remaining);
    }
}

/// No other client would ever find this entry. An early poll shows whether the reset helped:
/// another transaction may lock the lease's row for long.
void waiting_room::reset_watermark(const strategy::place& at) {
    round_.found.recheck_by(round_.began + 250ms);
    try {
        queue_.reset_watermark(*db_, at.name, at.ticket, write_deadline());
    } catch (const error& failure) {
        if (!failure.retryable() || !db_->alive()) throw;
    }
}

void waiting_room::see(const std::shared_ptr<turn>& which, const strategy::place& at) {
    auto& best = round_.found.best_position;
    best = std::min(best, at.position);
    which->progress.observe(round_.began, which->position, at.position);
    {
        const guard lock{mutex_};
        if (which->over() || which->position == at.position) return;
        which->position = at.position;
    }
    round_.found.changed = true;
    report_place(*which, at.position);
}

/// Our tickets are not there: they were served, or the server lost them in a crash, or another
/// client deleted them.
void waiting_room::ask_after(session& ours, std::vector<std::shared_ptr<turn>> missing) {
    {
        const guard lock{mutex_};
        std::erase_if(missing, [](const auto& each) { return each->over(); });
    }
    if (missing.empty()) return;
    std::vector<strategy::granted_name> places;
    for (const auto& each : missing) places.push_back({each->name, each->grant_id});
    const nanoseconds sent = context_.now();
    const auto served = queue_.served(*db_, ours.id(), places, soon());
    round_.found.changed = true;
    for (std::size_t i = 0; i < missing.size(); ++i) {
        const auto& which = missing[i];
        if (served[i]) {
            told_by_name_ = false;
            serve(which, served[i]->token, sent, served[i]->deadline_us);
            continue;
        }
        const guard lock{mutex_};
        if (which->over()) continue;
        // If it turns up after all, on a server that lags behind, no thread waits for it any more.
        grants_.give_back(ours, which->name, which->grant_id);
        end(*which, turn::state::vanished);
    }
}

/// Only a thread that holds a lease while it waits for another can be part of a cycle.
///
/// The tables are a little behind: an entry that was given up is still there, or a grant that came
/// to it, while its thread goes on and waits elsewhere. Two of those feign a cycle. A true cycle
/// persists until a member gives way, so it is checked twice.
void waiting_room::look_for_deadlocks(session& ours,
                                      const std::vector<std::shared_ptr<turn>>& standing) {
    if (options_.deadlock_detection == deadlock_detection::off) return;
    const bool possible = std::ranges::any_of(
        standing, [&](const auto& each) { return ours.grants().holds_for(each->thread); });
    if (!possible) return;
    const auto cycles = queue_.deadlocks(*db_, ours.id(), soon());
    for (const auto& each : standing) {
        if (std::ranges::find(cycles, each->grant_id, &strategy::deadlock_found::grant_id) ==
            cycles.end()) {
            each->cycle.clear();
        }
    }
    for (const auto& cycle : cycles) give_way(cycle, ours);
}

/// The entry is cancelled before its thread is notified: were it served meanwhile there would be no
/// deadlock.
void waiting_room::give_way(const strategy::deadlock_found& cycle, session& ours) {
    std::shared_ptr<turn> which;
    {
        const guard lock{mutex_};
        const auto found = turns_.find(cycle.grant_id);
        if (found == turns_.end() || found->second->giving_up) return;
        which = found->second;
    }
    if (!ours.grants().holds_for(which->thread)) return;
    if (which->cycle != cycle.tickets) {
        which->cycle = cycle.tickets;
        which->circle_since = round_.began;
    }
    const nanoseconds sure_at = which->circle_since + circle_stands;
    if (round_.began < sure_at) return round_.found.recheck_by(sure_at);
    const std::array<std::int64_t, 1> id{cycle.grant_id};
    if (queue_.cancel(*db_, id, write_deadline()).empty()) return;
    ours.grants().forget(cycle.grant_id);
    context_.count(counter::deadlocks);
    const error found{errc::deadlock, "a cycle of waiters: " + cycle.description +
                                          "; release what this thread holds, then start over"};
    const guard lock{mutex_};
    hand_on_.plan(which->name, {now()});
    if (which->over()) return;
    end(*which, turn::state::failed, &found);
}

void waiting_room::plan_next_poll() {
    const nanoseconds ended = now();
    const auto by = next_wakeup();
    const guard lock{mutex_};
    pacing_.end_poll(ended, round_.found, by);
}

/// What wakes this client before its next poll. New sleeps are taken first: one that begins between
/// the two questions is left to the next poll.
poll_pacing::wakeup waiting_room::next_wakeup() {
    const bool began = [this] {
        const guard lock{mutex_};
        return pacing_.take_new_sleep();
    }();
    if (listening_for_ != 0) return poll_pacing::wakeup::notification;
    if (!is_asleep()) return poll_pacing::wakeup::none;
    return began ? poll_pacing::wakeup::new_sleep : poll_pacing::wakeup::sleep;
}

/// Each commit to an SQLite file wakes all clients that watch it. Many waiters would spend the
/// machine on polls at each other's hand-overs. So only the first of a queue watches; the others
/// poll again when most of those before them may have been served. A waiter that is served before
/// that is notified by name, or finds it then, after a poll interval at the latest.
void waiting_room::stop_watching() {
    if (notifications_ == nullptr || db_->speaks() != sql::dialect::sqlite) return;
    if (is_idle()) return;
    const auto best = round_.found.best_position;
    if (watch_closely(poll_pacing::should_watch(best, told_by_name_))) return;
    const guard lock{mutex_};
    nanoseconds rest = options_.poll_interval;
    for (const auto& [grant_id, each] : turns_) {
        if (each->position == 0) continue;  // not seen yet
        rest = std::min(rest, pacing_.unwatch_for(each->position, each->progress, told_by_name_));
    }
    pacing_.no_later_than(round_.began + rest);
}

/// Returns whether we watch now.
bool waiting_room::watch_closely(bool wanted) {
    try {
        notifications_->want_changes(wanted);
        return wanted;
    } catch (const error& failure) {
        if (failure.kind() != errc::unsupported) throw;
        return false;  // this machine has no watches left
    }
}

/// Whether our session sleeps in the server and can be woken there.
bool waiting_room::is_asleep() const {
    const auto ours = sessions_.current();
    return ours && mysql_wait_thread_ && mysql_wait_thread_->asleep_for() == ours->id();
}

sql::deadline waiting_room::soon() const {
    return steady::now() + options_.statement_timeout;
}

sql::deadline waiting_room::write_deadline() const {
    return strategy::row_lock_deadline(*db_, soon(), patience_);
}

}  // namespace rowlock::detail
