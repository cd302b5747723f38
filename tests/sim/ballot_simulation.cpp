#include "sim/ballot_simulation.hpp"

#include "quorum/quorum_ballot.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>
#include <queue>
#include <sstream>
#include <utility>
#include <vector>

namespace rowlock::simulation {
namespace {

using protocol::quorum_action;
using protocol::quorum_ballot;
using protocol::quorum_step;
using protocol::quorum_terms;
using protocol::quorum_view;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr int most_stores = 5, most_clients = 10;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
class random_numbers {
public:
    explicit random_numbers(std::uint64_t seed) : state_{seed * 0x9E3779B97F4A7C15U + 0x1234567U} {}
    std::uint64_t next() {
        std::uint64_t mixed = (state_ += 0x9E3779B97F4A7C15U);
        mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
        mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
        return mixed ^ (mixed >> 31U);
    }
    double unit() { return static_cast<double>(next() >> 11U) / 9007199254740992.0; }
    i64 between(i64 least, i64 most) {
        return least + static_cast<i64>(next() % static_cast<std::uint64_t>(most - least + 1));
    }
    int index(int count) { return static_cast<int>(between(0, count - 1)); }
    bool happens(double probability) { return unit() < probability; }
    i64 exponential(i64 mean) {
        return static_cast<i64>(-static_cast<double>(mean) * std::log(1 - unit())) + 1;
    }

private:
    std::uint64_t state_;
};

struct session {
    i64 id = 0;
    i64 expires = 0;
    bool ended = false;
    int identity = 0;  ///< of the server that it was opened on
};
struct ticket {
    i64 grant = 0, session = 0;
    int client = 0;
};
/// What a store keeps on its disk.
struct tables {
    i64 token = 0;              ///< of the quorum
    i64 floor = 0;              ///< that no token is below: of the member
    i64 grant = 0, holder = 0;  ///< of the lease: 0 is free; the holder's session
    i64 deadline = 0;           ///< of the lease, once its release was asked for
    std::vector<session> sessions;
    std::deque<ticket> line;
    int epoch = 1;
};
struct store {
    tables disk;
    int identity = 0;
    bool ready = true;
    i64 down_until = 0;
    double rate = 1;
    i64 offset = 0;
    std::deque<tables> backups;
};

enum class kind : unsigned char {
    // to a store
    line,
    open,
    beat,
    claim,
    write,
    seal,
    release,
    data,
    // to a client
    granted,
    queued,
    no_session,
    opened,
    beaten,
    asked,  ///< a heartbeat: the release of what the session holds was asked for
    written,
    refused,  ///< a claim or write
    released,
    // timers of a client
    begin,
    finish,
    heartbeat,
    alarm,
    poll,
    repeat_write,
    repeat_release,
    let_go,
    // what happens to the world
    pause,
    client_crash,
    crash,
    partition,
    forget,
    back_up,
    raise_epoch,
    admit,
    admitted,
    predecessor_ends,
};
bool is_for_store(kind what) {
    return what <= kind::data;
}
bool is_reply(kind what) {
    return what >= kind::granted && what <= kind::released;
}
bool is_of_world(kind what) {
    return what >= kind::pause;
}

struct event {
    i64 at = 0;
    std::uint64_t order = 0;
    kind what{};
    int client = 0, store = 0;
    i64 session = 0, grant = 0, value = 0, sent = 0, life = 0;
    bool to_predecessor = false;
    int epoch = 0;
    bool operator<(const event& other) const {
        return at != other.at ? at > other.at : order > other.order;
    }
};

/// What one client knows of one store: what the product's client keeps for it.
struct link {
    i64 session = 0, window = 0;  ///< the window ends then, on the client's clock
    bool open = false, opening = false;
    i64 ask = 0, grant = 0;
    bool wanted = false, have = false, answered = false;
    i64 pending = -1;  ///< a claim (0) or write (a token) without an answer
    i64 tried = -(i64{1} << 40), suspect_until = 0;
    i64 round_trip = 0;  ///< a decaying maximum
    std::vector<i64> releasing;
};

class simulator;

class participant final : public quorum_view {
public:
    participant(simulator& in, int number) : in_{&in}, number_{number} {}
    [[nodiscard]] nanoseconds trusted_until(int store, i64 ask) const override;
    [[nodiscard]] bool answers(int store, nanoseconds now) const override;
    [[nodiscard]] nanoseconds round_trip() const override;
    [[nodiscard]] double random() override;

    std::array<link, most_stores> links{};
    std::optional<quorum_ballot> ballot;
    bool working = false, lapsed = false, overlaps = false;
    i64 wanted_since = 0, life = 1, acquisition = 0;
    i64 alarm_at = 0;
    int epoch = 1;
    i64 paused_until = 0;
    double rate = 1;
    i64 offset = 0;
    std::array<i64, most_stores> cut_until{};
    std::array<int, most_stores> cut_directions{};
    std::array<bool, most_stores> at_predecessor{};
    std::array<bool, most_stores> knows_better{};  ///< that the store is a member no more
    i64 grants = 0, longest_wait = 0;

private:
    simulator* in_;
    int number_;
};

std::size_t at(int index) {
    return static_cast<std::size_t>(index);
}

class simulator {
public:
    simulator(const world& of, std::uint64_t seed) : w_{of}, random_{seed} {
        for (int i = 0; i < w_.clients; ++i) clients_.emplace_back(*this, i);
        terms_.stores = w_.stores;
        terms_.majority = w_.majority;
        terms_.ttl = microseconds{w_.ttl};
        terms_.with = {.writes_back = w_.writes_back,
                       .shortest_of_majority = w_.shortest_of_majority,
                       .latches = w_.latches,
                       .seals = w_.seals};
    }

    report run();

    [[nodiscard]] i64 local(const participant& one) const {
        return static_cast<i64>(static_cast<double>(now_) * one.rate) + one.offset;
    }
    random_numbers& random() { return random_; }

private:
    [[nodiscard]] i64 clock(const store& one) const {
        return static_cast<i64>(static_cast<double>(now_) * one.rate) + one.offset;
    }
    void push(event what) {
        what.order = order_++;
        events_.push(what);
    }
    void timer(int client, kind what, i64 in, i64 grant = 0, i64 value = 0, int store = 0) {
        const auto& one = clients_[at(client)];
        push({.at = now_ + in,
              .what = what,
              .client = client,
              .store = store,
              .session = one.links[at(store)].session,
              .grant = grant,
              .value = value,
              .sent = one.acquisition,
              .life = one.life});
    }
    void happens(kind what, i64 in, int client = 0, int store = 0, i64 value = 0, i64 life = 0) {
        push({.at = now_ + in,
              .what = what,
              .client = client,
              .store = store,
              .value = value,
              .life = life});
    }
    i64 delay(int store = -1);
    bool is_lost(int client, int store, int direction);
    void send(kind what, int client, int store, i64 grant = 0, i64 value = 0);
    void reply(const event& to, kind what, i64 value = 0);

    static session* find(tables& disk, i64 id);
    bool lives(store& one, i64 id, bool here);
    bool is_held(store& one);
    void grant(store& one, i64 id, i64 holder);
    void serve(store& one, const event& from);
    void at_store(const event& what);
    void open_at(store& one, const event& what);
    void beat_at(store& one, const event& what);
    void line_at(store& one, const event& what);
    void raise_token_at(store& one, const event& what);
    void release_at(store& one, const event& what);
    void judge_write(const tables& disk, const event& what);

    [[nodiscard]] bool believes(const participant& one) const {
        return one.working && one.ballot && one.ballot->held(microseconds{local(one)});
    }
    template <typename Act>
    void decide(int client, Act act);
    void perform(int client, const quorum_action& what);
    void believe(int client);
    void stop_working(int client);
    void end_working(int client);
    void open_session(int client, int store);
    void drop_session(int client, int store);
    void learn_epoch(int client, i64 epoch);
    void release(int client, int store, i64 token);
    void at_client(const event& what);
    void on_timer(const event& what);

    [[nodiscard]] int not_ready() const;
    void to_world(const event& what);
    void cut(int store, int client, i64 until);
    void forget(const event& what);
    void raise_epoch(const event& what);
    void admit(const event& what);
    void begin_world();
    void judge_belief(int client);

    world w_;
    random_numbers random_;
    quorum_terms terms_;
    report out_;
    std::priority_queue<event> events_;
    std::uint64_t order_ = 0;
    i64 now_ = 0, ids_ = 0, greatest_token_ = 0;
    std::array<store, most_stores> stores_{}, predecessors_{};
    std::array<bool, most_stores> predecessor_lives_{};
    std::array<i64, most_stores> replaced_in_{};  ///< the epoch that knows of it
    std::vector<participant> clients_;
    std::array<i64, 4> tops_{};
    std::vector<i64> waits_;
    int epoch_ = 1;
};

nanoseconds participant::trusted_until(int store, i64 ask) const {
    const auto& one = links[at(store)];
    if (!one.have || one.ask != ask || knows_better[at(store)]) return nanoseconds::min();
    return microseconds{one.window};
}

bool participant::answers(int store, nanoseconds now) const {
    const auto& one = links[at(store)];
    return one.open && now < microseconds{one.window} && now >= microseconds{one.suspect_until};
}

nanoseconds participant::round_trip() const {
    i64 slowest = 0;
    for (const auto& each : links) slowest = std::max(slowest, each.round_trip);
    return microseconds{slowest};
}

double participant::random() {
    static_cast<void>(number_);
    return in_->random().unit();
}

i64 simulator::delay(int store) {
    i64 time = random_.between(w_.delay_min, w_.delay_max);
    if (store >= 0) time += w_.further[at(store)];
    if (w_.faults) {
        if (random_.happens(w_.tail)) time += random_.between(1 * ms, 50 * ms);
        if (random_.happens(w_.long_tail)) time += random_.between(0, w_.ttl * 2);
    }
    return time;
}

bool simulator::is_lost(int client, int store, int direction) {
    if (store == w_.dead_store) return true;
    if (!w_.faults) return false;
    const auto& one = clients_[at(client)];
    if (one.cut_until[at(store)] > now_ && (one.cut_directions[at(store)] & direction) != 0) {
        return true;
    }
    return random_.happens(w_.loss);
}

void simulator::send(kind what, int client, int store, i64 grant, i64 value) {
    ++out_.messages;
    if (is_lost(client, store, 1)) return;
    const auto& one = clients_[at(client)];
    push({.at = now_ + delay(store),
          .what = what,
          .client = client,
          .store = store,
          .session = one.links[at(store)].session,
          .grant = grant,
          .value = value,
          .sent = local(one),
          .life = one.life,
          .to_predecessor = one.at_predecessor[at(store)] && predecessor_lives_[at(store)],
          .epoch = one.epoch});
}

void simulator::reply(const event& to, kind what, i64 value) {
    ++out_.messages;
    if (is_lost(to.client, to.store, 2)) return;
    event answer = to;
    answer.at = now_ + delay(to.store);
    answer.what = what;
    answer.value = value;
    push(answer);
}

// ---- a store

session* simulator::find(tables& disk, i64 id) {
    const auto found = std::ranges::find(disk.sessions, id, &session::id);
    return found == disk.sessions.end() ? nullptr : &*found;
}

/// @param here only if it was opened on this server
bool simulator::lives(store& one, i64 id, bool here) {
    const auto* found = find(one.disk, id);
    if (found == nullptr || found->ended || found->expires <= clock(one)) return false;
    return !here || found->identity == one.identity;
}

bool simulator::is_held(store& one) {
    const auto& disk = one.disk;
    return disk.grant != 0 && lives(one, disk.holder, false) &&
           (disk.deadline == 0 || disk.deadline > clock(one));
}

/// 0: it is free.
void simulator::grant(store& one, i64 id, i64 holder) {
    one.disk.grant = id;
    one.disk.holder = holder;
    one.disk.deadline = 0;
}

void simulator::serve(store& one, const event& from) {
    auto& disk = one.disk;
    while (disk.grant == 0 && !disk.line.empty()) {
        const ticket first = disk.line.front();
        disk.line.pop_front();
        if (!lives(one, first.session, true)) continue;
        grant(one, first.grant, first.session);
        event notice = from;
        notice.client = first.client;
        notice.session = first.session;
        notice.grant = first.grant;
        notice.life = clients_[at(first.client)].life;
        reply(notice, kind::granted);
    }
}

void simulator::at_store(const event& what) {
    if (what.to_predecessor && !predecessor_lives_[at(what.store)]) return;
    store& one = what.to_predecessor ? predecessors_[at(what.store)] : stores_[at(what.store)];
    if (one.down_until > now_) return;
    switch (what.what) {
        case kind::open:
            return open_at(one, what);
        case kind::beat:
            return beat_at(one, what);
        case kind::line:
            return line_at(one, what);
        case kind::claim:
        case kind::write:
            return raise_token_at(one, what);
        case kind::seal:
            one.disk.token = std::max(one.disk.token, what.value);
            return;
        case kind::release:
            return release_at(one, what);
        default:
            return judge_write(one.disk, what);
    }
}

void simulator::open_at(store& one, const event& what) {
    auto& disk = one.disk;
    if (find(disk, what.grant) == nullptr) {
        const i64 time = clock(one);
        std::erase_if(disk.sessions, [&](const session& each) {
            return each.id != disk.holder && (each.ended || each.expires < time - 10 * second);
        });
        disk.sessions.push_back({what.grant, time + w_.ttl, false, one.identity});
    }
    reply(what, kind::opened, disk.epoch);
}

void simulator::beat_at(store& one, const event& what) {
    auto* ours = find(one.disk, what.session);
    if (ours == nullptr || !lives(one, what.session, true)) return reply(what, kind::no_session);
    const bool holds = one.disk.holder == what.session;
    if (holds && one.disk.deadline != 0) return reply(what, kind::asked, one.disk.grant);
    ours->expires = clock(one) + w_.ttl;
    reply(what, kind::beaten, holds ? one.disk.grant : 0);
}

void simulator::line_at(store& one, const event& what) {
    auto& disk = one.disk;
    if (!lives(one, what.session, true)) return reply(what, kind::no_session);
    const bool ours = disk.holder == what.session || !w_.grants_by_session;
    if (disk.grant == what.grant && ours) return reply(what, kind::granted);
    if (disk.grant != 0 && !is_held(one)) {
        auto* over = find(disk, disk.holder);
        if (over != nullptr && !lives(one, disk.holder, false)) over->ended = true;
        grant(one, 0, 0);
    }
    serve(one, what);
    if (disk.grant == what.grant) return;  // served from the line, and notified
    if (disk.grant == 0) {
        grant(one, what.grant, what.session);
        return reply(what, kind::granted);
    }
    if (std::ranges::find(disk.line, what.grant, &ticket::grant) == disk.line.end()) {
        disk.line.push_back({what.grant, what.session, what.client});
    }
    reply(what, kind::queued);
}

/// One statement: it locks the member's row and the lease's, and then compares.
void simulator::raise_token_at(store& one, const event& what) {
    auto& disk = one.disk;
    if (w_.epochs && what.epoch != disk.epoch) return reply(what, kind::refused, disk.epoch);
    const bool ours =
        disk.grant == what.grant && (disk.holder == what.session || !w_.grants_by_session);
    if (!ours || !one.ready || !is_held(one) || !lives(one, disk.holder, true)) {
        return reply(what, kind::refused);
    }
    const i64 known = std::max(disk.token, disk.floor);
    disk.token = what.what == kind::claim ? known + 1 : std::max(known, what.value);
    reply(what, kind::written, disk.token);
}

void simulator::release_at(store& one, const event& what) {
    auto& disk = one.disk;
    std::erase_if(disk.line, [&](const ticket& each) { return each.grant == what.grant; });
    if (disk.grant != 0 && (disk.grant == what.grant || !w_.releases_by_grant)) {
        disk.token = std::max(disk.token, what.value);
        grant(one, 0, 0);
    }
    serve(one, what);
    reply(what, kind::released);
}

/// A write of what the lock protects, which lives beside store 0. Four guards judge the same write.
void simulator::judge_write(const tables& disk, const event& what) {
    ++out_.writes;
    const bool row = disk.grant == what.grant;
    const bool late = greatest_token_ > what.value;
    const auto judge = [&](bool lets_through, i64& top, guard_report& guard) {
        if (!lets_through) return;
        if (what.value < top) ++guard.behind;
        if (late) ++guard.late;
        top = std::max(top, what.value);
    };
    judge(true, tops_[0], out_.unguarded);
    judge(row, tops_[1], out_.by_lease_row);
    judge(row && disk.token <= what.value, tops_[2], out_.by_row_and_token);
    judge(what.value >= tops_[3], tops_[3], out_.by_data_token);
}

// ---- a client

/// Lets the ballot decide, and does what it says.
template <typename Act>
void simulator::decide(int client, Act act) {
    auto& one = clients_[at(client)];
    if (!one.ballot) return;
    act(*one.ballot, nanoseconds{microseconds{local(one)}});
    const i64 acquisition = one.acquisition;
    for (;;) {
        const auto actions = one.ballot->take_actions();
        if (actions.empty()) break;
        for (const auto& each : actions) {
            perform(client, each);
            if (one.acquisition != acquisition) return;
        }
    }
    const auto state = one.ballot->now();
    if (state == quorum_ballot::state::held && !one.working) return believe(client);
    if (state == quorum_ballot::state::lost) {
        ++out_.losses;
        return end_working(client);
    }
    const auto alarm = one.ballot->alarm();
    if (alarm == nanoseconds::max()) return;
    const i64 due =
        std::max<i64>(std::chrono::duration_cast<microseconds>(alarm).count() - local(one), 0);
    one.alarm_at = now_ + static_cast<i64>(static_cast<double>(due) / one.rate) + 1;
    timer(client, kind::alarm, one.alarm_at - now_);
}

void simulator::perform(int client, const quorum_action& what) {
    auto& mine = clients_[at(client)].links[at(what.store)];
    switch (what.what) {
        case quorum_step::wait_in_line:
            mine.ask = what.ask;
            mine.grant = ++ids_;
            mine.wanted = true;
            mine.have = mine.answered = false;
            mine.pending = -1;
            if (mine.open && local(clients_[at(client)]) >= mine.window) mine.open = false;
            if (mine.open) {
                send(kind::line, client, what.store, mine.grant);
            } else if (!mine.opening || now_ - mine.tried > 100 * ms) {
                open_session(client, what.store);
            }
            return;
        case quorum_step::claim:
        case quorum_step::write:
            mine.pending = what.what == quorum_step::claim ? 0 : what.token;
            send(what.what == quorum_step::claim ? kind::claim : kind::write, client, what.store,
                 mine.grant, what.token);
            timer(client, kind::repeat_write, 100 * ms, mine.grant, 1, what.store);
            return;
        case quorum_step::seal:
            send(kind::seal, client, what.store, 0, what.token);
            return;
        case quorum_step::release:
            release(client, what.store, what.token);
            return;
    }
}

void simulator::release(int client, int store, i64 token) {
    auto& mine = clients_[at(client)].links[at(store)];
    mine.wanted = mine.have = false;
    mine.pending = -1;
    if (mine.grant == 0) return;
    mine.releasing.push_back(mine.grant);
    send(kind::release, client, store, mine.grant, token);
    timer(client, kind::repeat_release, 100 * ms, mine.grant, 0, store);
    mine.grant = 0;
}

void simulator::believe(int client) {
    auto& one = clients_[at(client)];
    one.working = true;
    one.lapsed = false;
    ++out_.grants;
    ++one.grants;
    out_.rests += one.ballot->rests();
    const i64 wait = now_ - one.wanted_since;
    waits_.push_back(wait);
    one.longest_wait = std::max(one.longest_wait, wait);
    one.wanted_since = 0;
    const i64 token = one.ballot->token();
    if (token <= greatest_token_) ++out_.token_falls;
    greatest_token_ = std::max(greatest_token_, token);
    i64 work = random_.between(w_.work_min, w_.work_max);
    if (w_.faults && random_.happens(w_.long_work)) work = random_.between(0, 2 * w_.ttl);
    timer(client, kind::finish, work);
    decide(client, [](quorum_ballot&, nanoseconds) {});  // sets the alarm
    if (one.links[0].grant == 0 || !w_.faults) return;
    // One write of what is protected: decided now, sent now or after a stall.
    i64 in = random_.between(0, work);
    if (random_.happens(0.02)) in += random_.between(0, 3 * w_.ttl);
    push({.at = now_ + in + delay(),
          .what = kind::data,
          .client = client,
          .grant = one.links[0].grant,
          .value = token});
}

void simulator::stop_working(int client) {
    auto& one = clients_[at(client)];
    one.working = false;
    ++one.acquisition;
    one.ballot.reset();
    timer(client, kind::begin, random_.between(0, w_.think));
}

/// The holder stops at once.
void simulator::end_working(int client) {
    auto& one = clients_[at(client)];
    for (int store = 0; store < w_.stores && believes(one); ++store) {
        if (!one.ballot->counts(store)) continue;
        ++out_.counted;
        if (stores_[at(store)].disk.token > one.ballot->token()) ++out_.ahead;
    }
    one.ballot->give_up();
    for (const auto& each : one.ballot->take_actions()) perform(client, each);
    stop_working(client);
}

void simulator::open_session(int client, int store) {
    auto& one = clients_[at(client)];
    auto& mine = one.links[at(store)];
    mine.open = false;
    mine.opening = true;
    mine.session = ++ids_;
    mine.tried = now_;
    if (mine.wanted && !mine.have && mine.grant != 0 && w_.grants_by_session) {
        // Another session, another grant.
        const i64 before = mine.grant;
        mine.releasing.push_back(before);
        send(kind::release, client, store, before);
        timer(client, kind::repeat_release, 100 * ms, before, 0, store);
        mine.grant = ++ids_;
    }
    send(kind::open, client, store, mine.session);
}

/// The session is over: so is what hung on it.
void simulator::drop_session(int client, int store) {
    auto& mine = clients_[at(client)].links[at(store)];
    mine.open = false;
    if (mine.have) {
        mine.have = false;
        return decide(client, [&](quorum_ballot& ballot, nanoseconds now) {
            ballot.ended(store, mine.ask, now);
        });
    }
    if (mine.wanted) open_session(client, store);
}

/// The members of that epoch do not include a server that was replaced by then. Its lease counts no
/// more from here on; the client lets go of it some time later.
void simulator::learn_epoch(int client, i64 epoch) {
    auto& one = clients_[at(client)];
    if (epoch <= one.epoch) return;
    one.epoch = static_cast<int>(epoch);
    for (int store = 0; store < w_.stores; ++store) {
        if (!one.at_predecessor[at(store)] || replaced_in_[at(store)] > epoch) continue;
        one.knows_better[at(store)] = w_.excludes;
        timer(client, kind::let_go, random_.between(0, second), 0, 0, store);
    }
}

void simulator::at_client(const event& what) {
    auto& one = clients_[at(what.client)];
    if (what.life != one.life) return;  // of a former life
    if (!is_reply(what.what)) return on_timer(what);
    auto& mine = one.links[at(what.store)];
    mine.suspect_until = 0;
    mine.round_trip =
        std::min<i64>(std::max(mine.round_trip * 7 / 8, local(one) - what.sent), second);
    const i64 window =
        w_.window_from_request ? what.sent + w_.ttl - w_.margin : local(one) + w_.ttl;
    switch (what.what) {
        case kind::opened:
            if (what.grant != mine.session || !mine.opening) return;
            mine.opening = false;
            learn_epoch(what.client, what.value);
            mine.window = window;
            if (local(one) >= mine.window) {
                if (mine.wanted) open_session(what.client, what.store);
                return;
            }
            mine.open = true;
            timer(what.client, kind::heartbeat, w_.heartbeat, 0, 0, what.store);
            if (mine.wanted && !mine.have) {
                send(kind::line, what.client, what.store, mine.grant);
            }
            return;
        case kind::beaten:
            if (what.session != mine.session || !mine.open) return;
            if (local(one) >= mine.window) return drop_session(what.client, what.store);
            // Before a window grows: is the belief over already?
            decide(what.client, [](quorum_ballot& ballot, nanoseconds now) { ballot.tick(now); });
            mine.window = std::max(mine.window, window);
            if (what.value != 0 && what.value != mine.grant) {
                send(kind::release, what.client, what.store, what.value);  // of no part of ours
            }
            return;
        case kind::asked:
            if (what.value != mine.grant) {
                return send(kind::release, what.client, what.store, what.value);
            }
            return decide(what.client, [&](quorum_ballot& ballot, nanoseconds now) {
                ballot.ended(what.store, mine.ask, now);
            });
        case kind::no_session:
            if (what.session != mine.session || !mine.open) return;
            return drop_session(what.client, what.store);
        case kind::granted:
            if (what.grant != mine.grant || what.session != mine.session || !mine.open ||
                !mine.wanted || mine.have) {
                if (what.grant != mine.grant) {
                    send(kind::release, what.client, what.store, what.grant);
                }
                return;
            }
            if (local(one) >= mine.window) return drop_session(what.client, what.store);
            mine.have = true;
            return decide(what.client, [&](quorum_ballot& ballot, nanoseconds now) {
                ballot.granted(what.store, mine.ask, now);
            });
        case kind::queued:
            if (what.grant == mine.grant) mine.answered = true;
            return;
        case kind::written:
            if (what.grant != mine.grant || mine.pending < 0 || what.value < mine.pending) return;
            mine.pending = -1;
            return decide(what.client, [&](quorum_ballot& ballot, nanoseconds now) {
                ballot.written(what.store, mine.ask, what.value, now);
            });
        case kind::refused:
            if (what.value > 0) learn_epoch(what.client, what.value);
            if (what.grant != mine.grant || mine.pending < 0) return;
            return decide(what.client, [&](quorum_ballot& ballot, nanoseconds now) {
                ballot.ended(what.store, mine.ask, now);
            });
        default:
            std::erase(mine.releasing, what.grant);
            return;
    }
}

void simulator::on_timer(const event& what) {
    auto& one = clients_[at(what.client)];
    auto& mine = one.links[at(what.store)];
    switch (what.what) {
        case kind::let_go:
            one.at_predecessor[at(what.store)] = one.knows_better[at(what.store)] = false;
            return drop_session(what.client, what.store);
        case kind::begin:
            if (what.sent != one.acquisition || one.ballot) return;
            if (one.wanted_since == 0) one.wanted_since = now_;
            one.ballot.emplace(terms_, one);
            timer(what.client, kind::poll, 200 * ms);
            return decide(what.client, [](quorum_ballot& ballot, nanoseconds) { ballot.begin(); });
        case kind::finish:
            if (what.sent != one.acquisition || !one.working) return;
            decide(what.client, [](quorum_ballot& ballot, nanoseconds now) { ballot.tick(now); });
            if (what.sent != one.acquisition) return;  // it was lost
            return end_working(what.client);
        case kind::alarm: {
            if (what.sent != one.acquisition || !one.ballot || what.at < one.alarm_at) return;
            const bool believed = believes(one);
            decide(what.client, [](quorum_ballot& ballot, nanoseconds now) { ballot.tick(now); });
            if (!w_.latches && one.working && !believed) one.lapsed = true;
            return;
        }
        case kind::heartbeat: {
            if (what.session != mine.session || !mine.open) return;
            if (local(one) >= mine.window) return drop_session(what.client, what.store);
            send(kind::beat, what.client, what.store);
            return timer(what.client, kind::heartbeat, w_.heartbeat, 0, 0, what.store);
        }
        case kind::poll:
            if (what.sent != one.acquisition || !one.ballot) return;
            timer(what.client, kind::poll, 200 * ms);
            for (int store = 0; store < w_.stores; ++store) {
                auto& each = one.links[at(store)];
                if (!each.wanted || each.have) continue;
                if (!each.answered) each.suspect_until = local(one) + w_.ttl;
                each.answered = false;
                if (each.open && local(one) >= each.window) each.open = false;
                if (each.open) {
                    send(kind::line, what.client, store, each.grant);
                } else {
                    open_session(what.client, store);
                }
            }
            return;
        case kind::repeat_write:
            if (what.grant != mine.grant || mine.pending < 0) return;
            if (what.value > 2) {
                return decide(what.client, [&](quorum_ballot& ballot, nanoseconds now) {
                    ballot.ended(what.store, mine.ask, now);
                });
            }
            send(mine.pending == 0 ? kind::claim : kind::write, what.client, what.store, mine.grant,
                 mine.pending);
            return timer(what.client, kind::repeat_write, 100 * ms, what.grant, what.value + 1,
                         what.store);
        case kind::repeat_release: {
            const auto found = std::ranges::find(mine.releasing, what.grant);
            if (found == mine.releasing.end()) return;
            if (what.value > 8) {
                mine.releasing.erase(found);
                return;
            }
            send(kind::release, what.client, what.store, what.grant);
            return timer(what.client, kind::repeat_release,
                         (100 * ms) << std::min<i64>(what.value, 4), what.grant, what.value + 1,
                         what.store);
        }
        default:
            return;
    }
}

// ---- what happens to the world

int simulator::not_ready() const {
    int count = 0;
    for (int store = 0; store < w_.stores; ++store) count += stores_[at(store)].ready ? 0 : 1;
    return count;
}

void simulator::cut(int store, int client, i64 until) {
    auto& one = clients_[at(client)];
    one.cut_until[at(store)] = until;
    one.cut_directions[at(store)] = static_cast<int>(random_.between(1, 3));
}

void simulator::to_world(const event& what) {
    auto& one = clients_[at(what.client)];
    switch (what.what) {
        case kind::pause:
            one.paused_until = now_ + (random_.happens(0.5) ? random_.exponential(w_.ttl / 4)
                                                            : random_.exponential(w_.ttl * 3 / 2));
            return happens(kind::pause, random_.exponential(w_.pause_every), what.client);
        case kind::client_crash: {
            participant again{*this, what.client};
            again.rate = one.rate;
            again.offset = one.offset;
            again.life = one.life + 1;
            again.acquisition = one.acquisition + 1;
            again.grants = one.grants;
            for (int store = 0; store < w_.stores; ++store) {
                again.at_predecessor[at(store)] =
                    predecessor_lives_[at(store)] && random_.happens(0.5);
            }
            again.longest_wait = one.longest_wait;
            // A new process reads the members' row where it connects: it may meet a former primary.
            one.~participant();
            new (&one) participant{std::move(again)};
            timer(what.client, kind::begin, random_.exponential(200 * ms));
            return happens(kind::client_crash, random_.exponential(w_.client_crash_every),
                           what.client);
        }
        case kind::crash:
            stores_[at(what.store)].down_until = now_ + random_.exponential(w_.ttl / 2);
            return happens(kind::crash, random_.exponential(w_.crash_every), 0, what.store);
        case kind::partition: {
            const int client = random_.index(w_.clients), store = random_.index(w_.stores);
            const i64 until = now_ + random_.exponential(w_.ttl);
            if (random_.happens(0.3)) {
                for (int each = 0; each < w_.clients; ++each) {
                    if (random_.happens(0.5)) cut(store, each, until);
                }
            } else {
                cut(store, client, until);
            }
            return happens(kind::partition, random_.exponential(w_.partition_every));
        }
        case kind::back_up: {
            auto& backups = stores_[at(what.store)].backups;
            backups.push_back(stores_[at(what.store)].disk);
            if (backups.size() > 12) backups.pop_front();
            return happens(kind::back_up, random_.between(100 * ms, 500 * ms), 0, what.store);
        }
        case kind::forget:
            return forget(what);
        case kind::raise_epoch:
            return raise_epoch(what);
        case kind::admit:
            return admit(what);
        case kind::admitted: {
            auto& amnesiac = stores_[at(what.store)];
            if (amnesiac.identity != what.life) return;
            amnesiac.disk.floor = std::max(amnesiac.disk.floor, what.value);
            amnesiac.disk.epoch = std::max(amnesiac.disk.epoch, epoch_);
            amnesiac.ready = true;
            return;
        }
        default:
            predecessor_lives_[at(what.store)] = false;
            return;
    }
}

/// A store is set back to a backup, as another server.
void simulator::forget(const event&) {
    happens(kind::forget, random_.exponential(w_.amnesia_every));
    const int number = random_.index(w_.stores);
    auto& one = stores_[at(number)];
    if (w_.forgets == amnesia::none || !one.ready || not_ready() >= w_.stores - w_.majority ||
        one.backups.empty() || predecessor_lives_[at(number)]) {
        return;
    }
    ++out_.amnesias;
    if (w_.former_primaries) {
        predecessors_[at(number)] = one;
        predecessor_lives_[at(number)] = true;
        replaced_in_[at(number)] = i64{1} << 40;
        for (auto& each : clients_) {
            each.at_predecessor[at(number)] = random_.happens(0.5);
            each.knows_better[at(number)] = false;
        }
        happens(kind::predecessor_ends, random_.exponential(w_.ttl * 8), 0, number);
    }
    one.disk = one.backups[at(random_.index(static_cast<int>(one.backups.size())))];
    one.backups.clear();
    one.down_until = now_ + random_.exponential(50 * ms);
    if (number == 0) tops_.fill(0);
    if (w_.forgets == amnesia::undetected) {
        one.disk.epoch = epoch_;
        return;
    }
    ++one.identity;
    if (w_.forgets == amnesia::votes_at_once) {
        one.disk.epoch = epoch_;
        return;
    }
    one.ready = false;
    // An operator notices, sooner or later.
    happens(kind::raise_epoch, random_.exponential(w_.ttl / 4), 0, number, 0, one.identity);
}

/// A majority of the others refuses the epochs before, and asks for what is held there: a holder
/// may count the store that is to be replaced.
void simulator::raise_epoch(const event& what) {
    auto& one = stores_[at(what.store)];
    if (one.identity != what.life) return;
    if (w_.epochs) {
        std::vector<int> others;
        for (int store = 0; store < w_.stores; ++store) {
            const auto& each = stores_[at(store)];
            if (store != what.store && each.ready && each.down_until <= now_) {
                others.push_back(store);
            }
        }
        if (static_cast<int>(others.size()) < w_.majority) {
            return happens(kind::raise_epoch, 100 * ms, 0, what.store, 0, what.life);
        }
        ++epoch_;
        replaced_in_[at(what.store)] = epoch_;
        for (const int store : others) {
            auto& disk = stores_[at(store)].disk;
            disk.epoch = epoch_;
            if (const auto* holder = find(disk, disk.holder)) disk.deadline = holder->expires;
        }
    }
    const bool waits = w_.forgets != amnesia::copies_only;
    const i64 wait = waits ? static_cast<i64>(static_cast<double>(w_.ttl) * (1 + w_.drift)) : 0;
    happens(kind::admit, wait + 1, 0, what.store, 0, what.life);
}

/// Reads the greatest token of a majority of others that are ready.
void simulator::admit(const event& what) {
    auto& one = stores_[at(what.store)];
    if (one.identity != what.life) return;
    if (w_.forgets == amnesia::waits_only || w_.forgets == amnesia::waits_and_raises) {
        if (w_.forgets == amnesia::waits_and_raises) one.disk.floor += i64{1} << 32;
        one.disk.epoch = std::max(one.disk.epoch, epoch_);
        one.ready = true;
        return;
    }
    std::vector<int> others;
    for (int store = 0; store < w_.stores; ++store) {
        const auto& each = stores_[at(store)];
        if (store != what.store && each.ready && each.down_until <= now_) others.push_back(store);
    }
    if (static_cast<int>(others.size()) < w_.majority) {
        return happens(kind::admit, 100 * ms, 0, what.store, 0, what.life);
    }
    for (std::size_t last = others.size() - 1; last > 0; --last) {
        std::swap(others[last], others[at(random_.index(static_cast<int>(last) + 1))]);
    }
    i64 greatest = 0;
    for (int i = 0; i < w_.majority; ++i) {
        const auto& disk = stores_[at(others[at(i)])].disk;
        greatest = std::max({greatest, disk.token, disk.floor});
    }
    happens(kind::admitted, delay(), 0, what.store, greatest, what.life);
}

void simulator::begin_world() {
    for (int store = 0; store < w_.stores; ++store) {
        auto& one = stores_[at(store)];
        one.rate = 1 + (random_.unit() * 2 - 1) * w_.drift;
        one.offset = random_.between(0, 1000 * second);
        if (!w_.faults) continue;
        happens(kind::crash, random_.exponential(w_.crash_every), 0, store);
        if (w_.forgets != amnesia::none) happens(kind::back_up, 0, 0, store);
    }
    for (int client = 0; client < w_.clients; ++client) {
        auto& one = clients_[at(client)];
        one.rate = 1 + (random_.unit() * 2 - 1) * w_.drift;
        one.offset = random_.between(0, 1000 * second);
        timer(client, kind::begin, random_.between(0, 5 * ms));
        if (!w_.faults) continue;
        happens(kind::pause, random_.exponential(w_.pause_every), client);
        happens(kind::client_crash, random_.exponential(w_.client_crash_every), client);
    }
    if (!w_.faults) return;
    happens(kind::partition, random_.exponential(w_.partition_every));
    happens(kind::forget, random_.exponential(w_.amnesia_every));
}

/// After each event of a client: whether another one believes as well. Without the latch a belief
/// may come back, with a token that is not the greatest any more.
void simulator::judge_belief(int client) {
    auto& one = clients_[at(client)];
    if (!believes(one)) {
        one.overlaps = false;
        return;
    }
    if (std::exchange(one.lapsed, false) && one.ballot->token() < greatest_token_) {
        ++out_.token_falls;
    }
    const bool overlaps = std::ranges::any_of(
        clients_, [&](const auto& each) { return &each != &one && believes(each); });
    if (overlaps && !one.overlaps) ++out_.overlaps;
    one.overlaps = overlaps;
}

report simulator::run() {
    begin_world();
    while (!events_.empty() && out_.grants < w_.grants) {
        event next = events_.top();
        events_.pop();
        if (next.at > w_.longest) break;
        now_ = next.at;
        if (is_for_store(next.what)) {
            at_store(next);
        } else if (is_of_world(next.what)) {
            to_world(next);
        } else if (clients_[at(next.client)].paused_until > now_) {
            next.at = clients_[at(next.client)].paused_until;
            events_.push(next);  // keeps its order
        } else {
            at_client(next);
            judge_belief(next.client);
        }
    }
    out_.time = now_;
    std::ranges::sort(waits_);
    if (!waits_.empty()) {
        out_.p50 = static_cast<double>(waits_[waits_.size() / 2]);
        out_.p99 = static_cast<double>(waits_[waits_.size() * 99 / 100]);
    }
    out_.least_served = w_.grants;
    for (const auto& each : clients_) {
        out_.least_served = std::min(out_.least_served, each.grants);
        out_.most_served = std::max(out_.most_served, each.grants);
        const i64 waiting = each.wanted_since != 0 ? now_ - each.wanted_since : 0;
        out_.longest_wait = std::max({out_.longest_wait, each.longest_wait, waiting});
    }
    return out_;
}

}  // namespace

void report::add(const report& other) {
    grants += other.grants;
    overlaps += other.overlaps;
    token_falls += other.token_falls;
    counted += other.counted;
    ahead += other.ahead;
    losses += other.losses;
    rests += other.rests;
    messages += other.messages;
    time += other.time;
    amnesias += other.amnesias;
    writes += other.writes;
    const auto add_guard = [](guard_report& to, const guard_report& from) {
        to.late += from.late;
        to.behind += from.behind;
    };
    add_guard(unguarded, other.unguarded);
    add_guard(by_lease_row, other.by_lease_row);
    add_guard(by_row_and_token, other.by_row_and_token);
    add_guard(by_data_token, other.by_data_token);
    longest_wait = std::max(longest_wait, other.longest_wait);
    least_served += other.least_served;
    most_served += other.most_served;
    p50 += other.p50;
    p99 += other.p99;
}

std::string to_string(const report& of) {
    const auto guard = [](const guard_report& one) {
        return std::to_string(one.late) + "/" + std::to_string(one.behind);
    };
    std::ostringstream text;
    text << of.grants << " grants, " << of.overlaps << " overlaps, " << of.token_falls
         << " token falls, " << of.losses << " lost, " << of.amnesias << " amnesias, "
         << of.messages / std::max<i64>(of.grants, 1) << " messages a grant; of " << of.writes
         << " writes late/behind: unguarded " << guard(of.unguarded) << ", lease row "
         << guard(of.by_lease_row) << ", row and token " << guard(of.by_row_and_token)
         << ", token of the data " << guard(of.by_data_token);
    return text.str();
}

report run(const world& of, std::uint64_t seed) {
    return simulator{of, seed}.run();
}

report run_many(const world& of, int seeds, std::uint64_t first) {
    report all;
    for (int i = 0; i < seeds; ++i) {
        world each = of;
        random_numbers weather{(first + static_cast<std::uint64_t>(i)) * 31 + 7};
        each.clients = static_cast<int>(weather.between(2, most_clients));
        if (each.pause_every == world{}.pause_every) {
            each.pause_every = weather.between(1, 8) * second;
        }
        each.amnesia_every = weather.between(2, 16) * second;
        each.crash_every = weather.between(4, 20) * second;
        each.partition_every = weather.between(1, 8) * second;
        each.loss = weather.unit() * 0.03;
        each.long_tail = weather.unit() * 0.006;
        if (weather.happens(0.25)) each.delay_max = 10 * ms;
        all.add(run(each, first + static_cast<std::uint64_t>(i)));
    }
    return all;
}

}  // namespace rowlock::simulation
