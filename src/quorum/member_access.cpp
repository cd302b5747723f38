#include "quorum/member_access.hpp"

#include "lock/client/engine.hpp"
#include <rowlock/error.hpp>

#include <utility>

namespace rowlock::detail {
namespace {

/// Before a client of it is made, whose error would not say why.
sql::connection_source usable(sql::connection_source source) {
    if (!sql::traits_of(source.speaks()).has_server) {
        throw error{errc::unsupported,
                    "SQLite cannot be a member of a quorum: a file that is copied or put back does "
                    "not show it, and what it forgot would not be missed"};
    }
    return source;
}

}  // namespace

member_access::member_access(sql::connection_source source, client_options options)
    : client_{usable(std::move(source)), std::move(options)} {
    protocol_.emplace(core().context().statements);
}

engine& member_access::core() const noexcept {
    return *client_.engine_;
}

template <typename Call>
auto member_access::call(Call what) {
    return *core().retries().on_connection(
        core().context().statement_deadline(), {},
        [&](sql::connection& db, sql::deadline until) { return what(db, until); });
}

quorum_members::standing member_access::look() {
    return call([&](sql::connection& db, sql::deadline until) {
        return quorum_members::standing{
            .row = protocol_->membership(db, until),
            .server = core().context().sessions.server_of_again(db, until).value_or("")};
    });
}

std::string member_access::server_of(const lease& held) const {
    const auto ours = core().sessions().current(held.session_id());
    return ours ? ours->server() : "";
}

std::optional<std::int64_t> member_access::raise(const protocol::quorum_protocol::grant_key& grant,
                                                 const protocol::known_quorum& under,
                                                 std::optional<std::int64_t> token) {
    return call([&](sql::connection& db, sql::deadline until) {
        return protocol_->raise(db, grant, under, token, until);
    });
}

void member_access::seal(std::string_view name, std::int64_t token, std::string_view quorum) {
    call([&](sql::connection& db, sql::deadline until) {
        protocol_->seal(db, name, token, quorum, until);
        return true;
    });
}

void member_access::found(const protocol::quorum_membership& as) {
    call([&](sql::connection& db, sql::deadline until) {
        protocol_->found(db, as, until);
        return true;
    });
}

bool member_access::raise_epoch(const protocol::quorum_membership& to) {
    return call([&](sql::connection& db, sql::deadline until) {
        if (protocol_->raise_epoch(db, to, until)) return true;
        // An earlier attempt, or another operator, may have done it.
        const auto row = protocol_->membership(db, until);
        return row && row->quorum == to.quorum && row->epoch == to.epoch &&
               row->members == to.members;
    });
}

std::int64_t member_access::greatest_token() {
    return call([&](sql::connection& db, sql::deadline until) {
        return protocol_->greatest_token(db, until);
    });
}

/// A lease that a client counts was claimed under an epoch before, and is in this list: the claim
/// was committed before the epoch rose.
void member_access::ask_for_quorum_leases() {
    const auto held = call(
        [&](sql::connection& db, sql::deadline until) { return protocol_->leases(db, until); });
    for (const auto& each : held) {
        client_.request_release(lock_name{each.name}, fencing_token{each.token});
    }
}

}  // namespace rowlock::detail
