#include "coordination/quorum/quorum_store.hpp"

#include "base/require.hpp"
#include "coordination/lease/engine.hpp"

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
      access_{std::make_unique<member_access>(std::move(source), with_events(std::move(options)))} {
}

/// A member in whose line we wait answers with an event.
client_options quorum_store::with_events(client_options options) {
    options.deadlock_detection = deadlock_detection::off;
    options.on_event = [this, also = std::move(options.on_event)](const event& what) {
        if (what.kind == event_kind::waiting && what.position > 0) answered();
        if (also) also(what);
    };
    return options;
}

std::optional<lease> quorum_store::acquire(const lock_name& name, std::stop_token stop,
                                           const std::string& note) {
    asked();
    auto granted = access_->locks().acquire(name, std::move(stop), {.note = note});
    if (granted) answered();
    return granted;
}

std::optional<std::int64_t> quorum_store::raise(const lease& held,
                                                std::optional<std::int64_t> token) noexcept {
    try {
        asked();
        const auto known = this->known();
        const auto sent = clock_.now();
        const auto raised =
            access_->raise({held.name(), held.session_id(), held.grant_id()}, known, token);
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
        access_->seal(name, token, known.id);
    } catch (const std::exception&) {
        // A member that does not learn of the token has an older guard: fence() names the risk.
    }
}

void quorum_store::fence_token(sql::connection& db, const std::string& name, std::int64_t token,
                               const fence_options& options) {
    access_->core().transactions().fence_quorum_token(db, name, token, options);
}

bool quorum_store::look() {
    asked();
    const auto seen = access_->look();
    {
        const std::lock_guard lock{mutex_};
        server_ = seen.server;
    }
    votes_ = false;
    const bool rose = members_.learn(position_, seen);
    require(ttl_ <= seen.row->longest_ttl,
            "the ttl is longer than the longest that this quorum allows (`rowlock quorum init "
            "--longest-ttl`)");
    votes_ = true;
    answered();
    return rose;
}

void quorum_store::asked() noexcept {
    auto none = nanoseconds::max();
    asked_at_.compare_exchange_strong(none, clock_.now());
}

void quorum_store::answered() noexcept {
    asked_at_ = nanoseconds::max();
    const std::lock_guard lock{mutex_};
    failure_.reset();
}

void quorum_store::failed(const error& why) noexcept {
    const std::lock_guard lock{mutex_};
    failure_ = why;
}

bool quorum_store::answers(nanoseconds within) const noexcept {
    if (!votes_) return false;
    const auto since = asked_at_.load();
    return since == nanoseconds::max() || clock_.now() - since < within;
}

quorum_member_info quorum_store::info() const {
    const auto since = asked_at_.load();
    const std::lock_guard lock{mutex_};
    return {.description = description_,
            .server = server_,
            .answers = !server_.empty() && since == nanoseconds::max(),
            .votes = votes_,
            .problem = failure_ ? failure_->what() : ""};
}

std::optional<error> quorum_store::failure() const {
    const std::lock_guard lock{mutex_};
    return failure_;
}

std::string quorum_store::server_of(const lease& held) const {
    return access_->server_of(held);
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
