// Members of quorums: founding, readmission, inspection.

#include "quorum/quorum_admin.hpp"

#include "base/require.hpp"
#include "base/server_words.hpp"
#include "base/sha256.hpp"
#include "quorum/member_access.hpp"
#include "quorum/quorum_members.hpp"
#include <rowlock/error.hpp>
#include <rowlock/quorum.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace rowlock {
namespace detail {
namespace {

using namespace std::chrono_literals;
using protocol::quorum_membership;
using standing = quorum_members::standing;

std::vector<std::unique_ptr<member_access>> open_all(
    const std::vector<sql::connection_source>& members) {
    require_count(members.size());
    std::vector<std::unique_ptr<member_access>> all;
    all.reserve(members.size());
    // A member that is away is not waited for.
    const client_options brief{.retry = {.attempts = 3, .total = 1s}};
    for (const auto& each : members) all.push_back(std::make_unique<member_access>(each, brief));
    return all;
}

/// The same for statements that read all names, or wait for many clients.
std::unique_ptr<member_access> patient(const sql::connection_source& member) {
    return std::make_unique<member_access>(member, client_options{.statement_timeout = 1min});
}

/// @throws error unless that server may be a member
void require_usable(std::size_t position, const std::string& server) {
    if (server.empty()) {
        throw error{errc::unsupported,
                    member_at(position) +
                        " does not tell which server it is, so that a promotion or "
                        "a restore would go unnoticed: it cannot be a member"};
    }
    // "/00000001", "mariadb::1": what a server restored from a backup may share with the one
    // before.
    if (server.starts_with('/') || server.find("::") != std::string::npos) {
        throw error{errc::unsupported,
                    member_at(position) +
                        " tells too little of which server it is: PostgreSQL needs the "
                        "right to call pg_control_system(), MariaDB a version with "
                        "server_uid (10.11.5)"};
    }
    if (server.starts_with("galera:") || server.starts_with("group:")) {
        throw error{errc::unsupported,
                    member_at(position) +
                        " belongs to a cluster, which is available by itself: use a "
                        "lease there, and fence()"};
    }
}

/// The same servers make the same id, so two founders at a time make one quorum.
std::string id_of(const std::vector<std::string>& servers) {
    std::string text;
    for (const auto& each : servers) text.append(each).push_back('\n');
    static constexpr char digits[] = "0123456789abcdef";
    std::string id;
    const auto hash = sha256(text);
    for (std::size_t i = 0; i < 16; ++i) {
        id.push_back(digits[hash[i] / 16]);
        id.push_back(digits[hash[i] % 16]);
    }
    return id;
}

/// What the members say; a failure instead of an answer.
struct answer {
    std::optional<standing> seen{};
    std::optional<error> failure{};
};

std::vector<answer> look_at(const std::vector<std::unique_ptr<member_access>>& members) {
    std::vector<answer> all(members.size());
    std::vector<std::jthread> asking;
    for (std::size_t i = 0; i < members.size(); ++i) {
        asking.emplace_back([&, i] {
            try {
                all[i].seen = members[i]->look();
            } catch (const error& why) {
                all[i].failure = why;
            } catch (const std::exception& why) {
                all[i].failure = error{errc::out_of_resources, why.what()};
            }
        });
    }
    asking.clear();
    return all;
}

/// The membership of the greatest epoch among those that answer, of one that votes if any does.
std::optional<quorum_membership> latest(const std::vector<answer>& answers) {
    std::optional<quorum_membership> found;
    bool found_votes = false;
    for (const auto& each : answers) {
        if (!each.seen || !each.seen->row) continue;
        const bool votes = each.seen->row->ready_for == each.seen->server;
        const bool better = !found || (votes && !found_votes) ||
                            (votes == found_votes && each.seen->row->epoch > found->epoch);
        if (!better) continue;
        found = each.seen->row;
        found_votes = votes;
    }
    return found;
}

/// The members may know different ones: a founding that raises it may have been broken off.
std::chrono::microseconds longest_ttl_of(const std::vector<answer>& answers) {
    std::chrono::microseconds longest{0};
    for (const auto& each : answers) {
        if (each.seen && each.seen->row) longest = std::max(longest, each.seen->row->longest_ttl);
    }
    return longest;
}

std::int64_t greatest_epoch(const std::vector<answer>& answers) {
    std::int64_t greatest = 0;
    for (const auto& each : answers) {
        if (each.seen && each.seen->row) greatest = std::max(greatest, each.seen->row->epoch);
    }
    return greatest;
}

/// Whether a member votes: its server is the one in the list, and is ready.
bool votes(const answer& one, const quorum_membership& current, std::size_t position) {
    return one.seen && one.seen->row && one.seen->row->quorum == current.quorum &&
           one.seen->server == current.members.at(position) &&
           one.seen->row->ready_for == one.seen->server;
}

void require_majority(std::size_t count, std::size_t of,
                      const std::optional<error>& why = std::nullopt) {
    const std::size_t majority = of / 2 + 1;
    if (count >= majority) return;
    throw error{errc::conflict,
                "only " + std::to_string(count) + " of the other members may vote and answer: " +
                    std::to_string(majority) + " are needed to know what this one forgot" +
                    (why ? std::string{": "} + why->what() : std::string{})};
}

}  // namespace

void readmit(const std::vector<sql::connection_source>& members, std::size_t position,
             bool servers_differ) {
    auto all = open_all(members);
    require(position < all.size(), "the quorum has no member of that position");
    auto answers = look_at(all);
    const auto current = latest(answers);
    if (!current) throw error{errc::conflict, "these servers are in no quorum"};
    require(current->members.size() == all.size(), "the quorum has another number of members");
    if (answers[position].failure) throw error{*answers[position].failure};
    const auto server = answers[position].seen->server;
    require_usable(position, server);
    if (answers[position].seen->row && answers[position].seen->row->quorum != current->quorum) {
        throw error{errc::conflict, member_at(position) + " is a member of another quorum"};
    }
    for (std::size_t i = 0; servers_differ && i < all.size(); ++i) {
        if (i != position && current->members[i] == server) {
            throw error{errc::conflict, member_at(position) + " is the server of " + member_at(i)};
        }
    }
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (i != position && votes(answers[i], *current, i)) others.push_back(i);
    }
    if (votes(answers[position], *current, position) &&
        answers[position].seen->row->epoch == current->epoch) {
        throw error{errc::conflict, member_at(position) + " votes: there is nothing to readmit"};
    }
    std::optional<error> away;
    for (const auto& each : answers) {
        if (each.failure) away = each.failure;
    }
    require_majority(others.size(), all.size(), away);
    for (const auto each : others) all[each] = patient(members[each]);
    all[position] = patient(members[position]);

    auto next = *current;
    next.epoch = greatest_epoch(answers) + 1;
    next.longest_ttl = longest_ttl_of(answers);
    next.members[position] = server;
    next.ready_for.clear();
    // First here: whatever this server remembers of its readiness, it does not vote from now on.
    all[position]->found(next);
    std::vector<std::size_t> raised;
    for (const auto each : others) {
        // From here on no client that counts the former server gains that member.
        try {
            if (all[each]->raise_epoch(next)) raised.push_back(each);
        } catch (const error& why) {
            if (!why.retryable() && why.kind() != errc::outcome_unknown) throw;
            away = why;
        }
    }
    require_majority(raised.size(), all.size(), away);
    for (const auto each : raised) all[each]->ask_for_quorum_leases();
    // No lease that was counted before outlives this; a sixth is for clocks of other rates.
    std::this_thread::sleep_for(next.longest_ttl + next.longest_ttl / 6);
    std::size_t copied = 0;
    for (const auto each : raised) {
        if (copied == all.size() / 2 + 1) break;
        const auto greatest = all[each]->greatest_token();
        // Another server may have taken its place meanwhile, and forgotten tokens: looked at after
        // the read, whose connection may have led there.
        const answer again{.seen = all[each]->look()};
        if (!votes(again, next, each) || again.seen->row->epoch != next.epoch) continue;
        next.floor = std::max(next.floor, greatest);
        ++copied;
    }
    require_majority(copied, all.size());
    next.ready_for = server;
    all[position]->found(next);
    const auto done = all[position]->look();
    if (!done.row || done.row->epoch != next.epoch || done.row->ready_for != done.server) {
        throw error{errc::conflict, "another change of the members came in between: try again"};
    }
}

}  // namespace detail

void found_quorum(const std::vector<sql::connection_source>& members,
                  std::optional<std::chrono::milliseconds> longest_ttl) {
    using namespace detail;
    require(!longest_ttl || (*longest_ttl >= 100ms && *longest_ttl <= 24h),
            "the longest ttl must be from 100 ms to 1 day");
    auto all = open_all(members);
    const auto answers = look_at(all);
    std::vector<std::string> servers;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (answers[i].failure) throw error{*answers[i].failure};
        require_usable(i, answers[i].seen->server);
        servers.push_back(answers[i].seen->server);
    }
    if (std::set<std::string>{servers.begin(), servers.end()}.size() != servers.size()) {
        throw error{errc::conflict,
                    "two members are one server, and would fail together: each needs its own"};
    }
    const auto existing = latest(answers);
    const quorum_membership wanted{
        .quorum = existing ? existing->quorum : id_of(servers),
        .epoch = existing ? existing->epoch : 1,
        .members = servers,
        .floor = 0,
        .longest_ttl = std::max<std::chrono::microseconds>(
            longest_ttl.value_or(existing ? 0ms : 30s), longest_ttl_of(answers))};
    if (existing && existing->members != servers) {
        throw error{errc::conflict,
                    "these servers are members of a quorum already, in another order or with "
                    "others: name its members, or readmit the one that was replaced"};
    }
    std::size_t founded = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto& row = answers[i].seen->row;
        if (row && row->quorum != wanted.quorum) {
            throw error{errc::conflict, member_at(i) + " is a member of another quorum"};
        }
        founded += row ? 1U : 0U;
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        // Clients may have held locks by a majority, of which this member knows nothing.
        const bool had_majority = founded > all.size() / 2 || wanted.epoch > 1;
        if (!answers[i].seen->row && had_majority) {
            throw error{errc::conflict, member_at(i) +
                                            " is in no quorum, and the others are: readmit "
                                            "it"};
        }
    }
    // All of them answer: from here on a slow one is waited for, so that none is left out.
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = patient(members[i]);
    for (std::size_t i = 0; i < all.size(); ++i) {
        // Fewer than a majority know of the quorum. If it was never in use they know no token.
        if (!answers[i].seen->row || founded == all.size() || all[i]->greatest_token() == 0)
            continue;
        throw error{errc::conflict,
                    "this quorum was in use, and most of its members have forgotten "
                    "it: restart it (`rowlock quorum restart`)"};
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (const auto& row = answers[i].seen->row) {
            if (row->longest_ttl >= wanted.longest_ttl) continue;
            auto longer = *row;  // a readmission meanwhile has another epoch, and is left alone
            longer.longest_ttl = wanted.longest_ttl;
            all[i]->found(longer);
            continue;
        }
        auto row = wanted;
        row.ready_for = servers[i];
        all[i]->found(row);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        // One that missed a change of the members, and forgot nothing: it only refuses more now.
        if (votes(answers[i], wanted, i) && answers[i].seen->row->epoch < wanted.epoch) {
            static_cast<void>(all[i]->raise_epoch(wanted));
        }
    }
    for (const auto& each : look_at(all)) {
        if (each.failure) throw error{*each.failure};
        if (!each.seen->row || each.seen->row->quorum != wanted.quorum) {
            throw error{errc::conflict, "another quorum was founded at the same time"};
        }
    }
}

void readmit_member(const std::vector<sql::connection_source>& members, std::size_t position) {
    detail::readmit(members, position, true);
}

void restart_quorum(const std::vector<sql::connection_source>& members) {
    using namespace detail;
    auto all = open_all(members);
    const auto answers = look_at(all);
    auto next = latest(answers);
    if (!next) throw error{errc::conflict, "these servers are in no quorum"};
    require(next->members.size() == all.size(), "the quorum has another number of members");
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (answers[i].failure) throw error{*answers[i].failure};
        require_usable(i, answers[i].seen->server);
        if (answers[i].seen->row && answers[i].seen->row->quorum != next->quorum) {
            throw error{errc::conflict, member_at(i) + " is a member of another quorum"};
        }
        next->members[i] = answers[i].seen->server;
    }
    next->epoch = greatest_epoch(answers) + 1;
    next->longest_ttl = longest_ttl_of(answers);
    next->ready_for.clear();
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = patient(members[i]);
    for (const auto& each : all) each->found(*next);  // none votes from here on
    for (const auto& each : all) each->ask_for_quorum_leases();
    std::this_thread::sleep_for(next->longest_ttl + next->longest_ttl / 6);
    std::int64_t greatest = 0;
    for (const auto& each : all) greatest = std::max(greatest, each->greatest_token());
    next->floor = greatest + (std::int64_t{1} << 32);
    for (std::size_t i = 0; i < all.size(); ++i) {
        next->ready_for = next->members[i];
        all[i]->found(*next);
    }
    const auto done = look_at(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (done[i].failure) throw error{*done[i].failure};
        if (!votes(done[i], *next, i) || done[i].seen->row->epoch != next->epoch) {
            throw error{errc::conflict, "another change of the members came in between: try again"};
        }
    }
}

std::vector<quorum_member_info> inspect_quorum(const std::vector<sql::connection_source>& members) {
    using namespace detail;
    const auto all = open_all(members);
    const auto answers = look_at(all);
    const auto current = latest(answers);
    std::vector<quorum_member_info> shown;
    shown.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        quorum_member_info one{.description = members[i].description()};
        if (answers[i].failure) {
            one.problem = base::with_server_words(*answers[i].failure);
        } else {
            one.server = answers[i].seen->server;
            one.answers = true;
            quorum_members judge{all.size()};
            try {
                // Against the latest epoch: what a client that has seen all members would say.
                if (current) judge.expect(*current);
                judge.learn(i, *answers[i].seen);
                one.votes = true;
            } catch (const error& why) {
                one.problem = why.what();
            }
        }
        shown.push_back(std::move(one));
    }
    return shown;
}

}  // namespace rowlock
