#include "quorum/quorum_store.hpp"

#include "base/require.hpp"
#include "lock/client/engine.hpp"
#include "lock/session/grant.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace rowlock::detail {

quorum_store::quorum_store(sql::connection_source source, client_options options,
                           quorum_members& members, std::size_t position)
    : members_{members},
      position_{position},
      description_{source.description()},
      ttl_{options.ttl},
      clock_{options.time},
      access_{std::make_shared<member_access>(std::move(source), with_events(std::move(options)))} {
}

/// A member in whose line we wait answers with an event.
client_options quorum_store::with_events(client_options options) {
    options.deadlock_detection = deadlock_detection::off;
    options.on_event = [state = health_, also = std::move(options.on_event)](const event& what) {
        if (what.kind == event_kind::waiting && what.position > 0) answered(*state);
        if (also) also(what);
    };
    return options;
}

std::optional<lease> quorum_store::acquire(const lock_name& name, std::stop_token stop,
                                           const std::string& note) {
    const bool first = asked();
    const auto sent = clock_.now();
    auto granted = access()->locks().acquire(name, std::move(stop), {.note = note});
    // Stopped before an answer could be expected: that says nothing about the member.
    const bool early = first && clock_.now() - sent < std::chrono::milliseconds{200};
    if (granted || early) answered();
    return granted;
}

std::optional<std::int64_t> quorum_store::raise(const lease& held,
                                                std::optional<std::int64_t> token) noexcept {
    try {
        asked();
        const auto known = this->known();
        const auto sent = clock_.now();
        const auto raised =
            access()->raise({held.name(), held.session_id(), held.grant_id()}, known, token);
        round_trip_ = std::min<nanoseconds>(
            std::max<nanoseconds>(round_trip_.load() * 7 / 8, clock_.now() - sent),
            std::chrono::seconds{1});
        answered();
        if (raised) return raised;
        // The lease may be over, or the epoch another one: the next ask looks.
        votes_ = false;
    } catch (const error& why) {
        failed(why);
    } catch (const std::exception& why) {
        failed(error{errc::out_of_resources, why.what()});
    }
    return std::nullopt;
}

void quorum_store::seal(const std::string& name, std::int64_t token) noexcept {
    try {
        const auto known = this->known();
        access()->seal(name, token, known.id);
    } catch (const std::exception&) {
        // A member that does not learn of the token has an older guard: fence() names the risk.
    }
}

void quorum_store::fence_token(sql::connection& db, const std::string& name, std::int64_t token,
                               const fence_options& options) {
    access()->core().transactions().fence_quorum_token(db, name, token, options);
}

bool quorum_store::look() {
    asked();
    const auto seen = access()->look();
    {
        const std::lock_guard lock{mutex_};
        server_ = seen.server;
    }
    votes_ = false;
    const bool rose = members_.learn(position_, seen);
    require(
        ttl_ <= seen.row->longest_ttl,
        "the ttl is longer than the longest that this quorum allows: shorten it, or raise that by "
        "`rowlock quorum init --longest-ttl`");
    votes_ = true;
    answered();
    return rose;
}

bool quorum_store::asked() noexcept {
    auto none = nanoseconds::max();
    return health_->asked_at.compare_exchange_strong(none, clock_.now());
}

void quorum_store::answered(health& state) noexcept {
    state.asked_at = nanoseconds::max();
    const std::lock_guard lock{state.mutex};
    state.failure.reset();
}

void quorum_store::answered() noexcept {
    answered(*health_);
}

void quorum_store::failed(const error& why) noexcept {
    const std::lock_guard lock{health_->mutex};
    health_->failure = why;
    health_->failed_at = clock_.now();
}

void quorum_store::close() noexcept {
    std::shared_ptr<member_access> last;  // destroyed without the mutex
    const std::lock_guard lock{mutex_};
    last.swap(access_);
}

std::shared_ptr<member_access> quorum_store::access() const {
    const std::lock_guard lock{mutex_};
    if (!access_) throw client_destroyed();
    return access_;
}

bool quorum_store::answers(nanoseconds within) const noexcept {
    if (!votes_) return false;
    const auto since = health_->asked_at.load();
    return since == nanoseconds::max() || clock_.now() - since < within;
}

bool quorum_store::may_answer() const noexcept {
    const auto since = health_->asked_at.load();
    return since == nanoseconds::max() || clock_.now() - since < longest_release;
}

quorum_member_info quorum_store::info() const {
    quorum_member_info shown{.description = description_, .server = server(), .votes = votes_};
    shown.answers = !shown.server.empty() && health_->asked_at.load() == nanoseconds::max();
    const std::lock_guard lock{health_->mutex};
    if (health_->failure) shown.problem = health_->failure->what();
    return shown;
}

std::optional<error> quorum_store::failure_since(nanoseconds time) const {
    const std::lock_guard lock{health_->mutex};
    return health_->failed_at >= time ? health_->failure : std::nullopt;
}

std::string quorum_store::server_of(const lease& held) const {
    return access()->server_of(held);
}

bool quorum_store::is_member(const std::string& server) const {
    return members_.includes(position_, server);
}

std::string quorum_store::server() const {
    const std::lock_guard lock{mutex_};
    return server_;
}

protocol::known_quorum quorum_store::known() const {
    const auto current = members_.current();
    if (!current) return {};
    return {.id = current->quorum, .epoch = current->epoch};
}

}  // namespace rowlock::detail
