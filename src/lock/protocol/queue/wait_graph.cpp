#include "lock/protocol/queue/wait_graph.hpp"

#include "base/utf8.hpp"
#include "lock/protocol/queue/party_labels.hpp"
#include "lock/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/damaged.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace rowlock::protocol {
namespace {

/// A longer cycle is described by its beginning and its end.
constexpr std::size_t longest_cycle_text = 16;
constexpr std::size_t longest_note = 64;

std::string describe(const sql::result& rows, std::size_t row) {
    std::string who{rows.text(row, 7)};
    who.append("[").append(rows.text(row, 8)).append("]@").append(rows.text(row, 6));
    who.append("/").append(rows.text(row, 4));
    // Notes come from other programs and go into messages.
    const auto note = rows.text(row, 5);
    if (!note.empty() && note.size() <= longest_note && utf8::check(note) == utf8::verdict::clean) {
        who.append(", ").append(note);
    }
    return who;
}

}  // namespace

wait_graph::wait_graph(const sql::result& rows) {
    std::map<std::pair<session_id, std::string>, party> parties;
    const auto party_of = [&](session_id session, std::string_view label) {
        return parties.try_emplace({session, std::string{label}}, parties.size()).first->second;
    };
    vertices_.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto ticket = rows.maybe_integer<ticket_no>(row, 1);
        const auto session = session_id{sql::shown_integer(rows, row, 3)};
        const auto label = rows.text(row, 4);
        vertex made{
            .name = std::string{rows.text(row, 0)},
            .holds = !ticket.has_value(),
            .ticket = ticket.value_or(ticket_no{}),
            .grant_id = rows.maybe_integer<grant_id>(row, 2).value_or(grant_id{}),
            .session = session,
            .weight = rows.maybe_integer(row, 9),
            .made = {sql::shown_integer(rows, row, 10),
                     static_cast<std::int64_t>(ticket.value_or(ticket_no{}))},
            .self = party_of(session, label),
            .blocked = {},
            .base = rows.maybe_integer<rowlock::grant_id>(row, 11).value_or(rowlock::grant_id{}),
            .blocks_a_hold = false,
            .who = describe(rows, row)};
        if (!made.holds) made.blocked.push_back(made.self);
        read_blocked(rows, row, made, party_of);
        vertices_.push_back(std::move(made));
    }
    name_bases();
    entries_of_.resize(parties.size());
    const auto place = [](const vertex& of) {
        return std::tuple{std::string_view{of.name}, !of.holds, of.ticket};
    };
    std::ranges::sort(vertices_, {}, place);
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
        for (const party each : vertices_[i].blocked) entries_of_[each].push_back(i);
    }
}

/// Of an entry of readers `self` is their thread: the hold is not there yet.
template <typename PartyOf>
void wait_graph::read_blocked(const sql::result& rows, std::size_t row, vertex& made,
                              PartyOf party_of) {
    if (made.holds || rows.is_null(row, 12)) return;
    const bool of_readers = rows.text(row, 4).starts_with(label_of_readers);
    for (const auto each : labels_in(rows.text(row, 12))) {
        const party blocked = party_of(made.session, each);
        if (of_readers && !each.starts_with(label_of_readers)) made.self = blocked;
        made.blocked.push_back(blocked);
    }
}

/// The hold that an upgrade belongs to is not released before that is over. And an entry whose
/// parties hold nothing is in a cycle only because others stand behind it.
void wait_graph::name_bases() {
    std::set<party> holders;
    std::map<rowlock::grant_id, party> by_grant;
    for (const vertex& each : vertices_) {
        if (!each.holds) continue;
        holders.insert(each.self);
        if (each.grant_id != rowlock::grant_id{}) by_grant.emplace(each.grant_id, each.self);
    }
    for (vertex& each : vertices_) {
        if (each.holds) continue;
        const auto base = by_grant.find(each.base);
        if (base != by_grant.end()) each.blocked.push_back(base->second);
        each.blocks_a_hold =
            std::ranges::any_of(each.blocked, [&](party which) { return holders.contains(which); });
    }
}

/// What an upgrade wants stands for the exclusive mode.
bool wait_graph::fits(const vertex& holder, const vertex& entry) {
    if (!holder.weight || !entry.weight) return false;
    constexpr auto all = permits_for(lock_mode::exclusive);
    const auto of = [](std::int64_t weight) { return mode_for(weight) ? weight : all; };
    return of(*holder.weight) + of(*entry.weight) <= all;
}

/// Walks from one entry to what it waits for, through older entries only, shortest paths first.
/// Visits each entry and each obstacle once: one that leads to no cycle never will.
///
/// An entry waits neither for what its own party holds, nor for other entries of its party at the
/// same lock: a lease is bound to no thread. So no path leads from a lock to itself within a party.
class wait_graph::search {
public:
    search(const wait_graph& graph, std::size_t start)
        : graph_{graph}, start_{graph.vertices_[start]} {
        from_.emplace(start, step{start, start});
        open_.push(start);
    }

    /// Returns the cycle, or nullopt. Uses up `effort`, one for each entry.
    std::optional<deadlock_found> run(std::size_t& effort) {
        for (; !open_.empty() && effort > 0; open_.pop(), --effort) {
            if (const auto last = follow(open_.front())) return tell(way_to(*last));
        }
        return std::nullopt;
    }

private:
    /// From an entry to what it waits for.
    struct step {
        std::size_t entry;
        std::size_t obstacle;
    };

    /// Returns the last step of a cycle, or nullopt.
    std::optional<step> follow(std::size_t from) {
        const vertex& entry = graph_.vertices_[from];
        const auto first =
            std::ranges::lower_bound(graph_.vertices_, entry.name, {}, &vertex::name);
        for (auto it = first; it != graph_.vertices_.end() && it->name == entry.name; ++it) {
            if (!it->holds && it->ticket >= entry.ticket) break;
            if (has(entry, it->self) || (it->holds && fits(*it, entry))) continue;
            if (it->holds && it->grant_id != rowlock::grant_id{} && it->grant_id == entry.base) {
                continue;
            }
            const auto obstacle = static_cast<std::size_t>(it - graph_.vertices_.begin());
            if (it->holds ? has(start_, it->self) : it->self == start_.self) {
                if (it->name != start_.name || &*it == &start_) return step{from, obstacle};
            } else if (met_.insert(obstacle).second) {
                go_on({from, obstacle});
            }
        }
        return std::nullopt;
    }

    static bool has(const vertex& entry, party which) {
        return std::ranges::find(entry.blocked, which) != entry.blocked.end();
    }

    /// Continues with what the party of the obstacle waits for itself. An entry before ours in the
    /// queue waits for the same holders, and if ours wants a part of the lock, perhaps for one
    /// beside which ours fits.
    void go_on(const step& way) {
        const vertex& obstacle = graph_.vertices_[way.obstacle];
        for (const std::size_t next : graph_.entries_of_[obstacle.self]) {
            const vertex& entry = graph_.vertices_[next];
            const bool same = entry.name == obstacle.name;
            const bool itself =
                next == way.obstacle && graph_.vertices_[way.entry].weight.has_value();
            const bool younger = entry.blocks_a_hold && entry.made >= start_.made;
            if (younger || (same && !itself) || !from_.emplace(next, way).second) continue;
            open_.push(next);
        }
    }

    [[nodiscard]] std::vector<step> way_to(step last) const {
        std::vector<step> way{last};
        while (&graph_.vertices_[way.back().entry] != &start_) {
            way.push_back(from_.at(way.back().entry));
        }
        std::ranges::reverse(way);
        return way;
    }

    [[nodiscard]] deadlock_found tell(const std::vector<step>& way) const {
        deadlock_found found{
            .grant_id = start_.grant_id, .description = describe(way), .entries = {}};
        for (const step& each : way) found.entries.push_back(graph_.vertices_[each.entry].grant_id);
        return found;
    }

    [[nodiscard]] std::string describe(const std::vector<step>& way) const {
        std::string text;
        for (std::size_t i = 0; i < way.size(); ++i) {
            if (way.size() > longest_cycle_text && i == longest_cycle_text / 2) {
                text.append("(" + std::to_string(way.size() - longest_cycle_text) + " more) -> ");
                i = way.size() - longest_cycle_text / 2;
            }
            const vertex& obstacle = graph_.vertices_[way[i].obstacle];
            text.append(graph_.vertices_[way[i].entry].name);
            text.append(obstacle.holds ? " (held by " : " (first waited for by ");
            text.append(obstacle.who).append(") -> ");
        }
        return text.append(start_.name);
    }

    const wait_graph& graph_;
    const vertex& start_;
    std::queue<std::size_t>
        open_;  ///< reached and not expanded yet, in the order of their distance
    // Of what was reached alone: a search for each of many entries must not clear what all of them
    // fill.
    std::unordered_set<std::size_t> met_;         ///< obstacles that were expanded
    std::unordered_map<std::size_t, step> from_;  ///< how an entry was reached
};

std::vector<deadlock_found> wait_graph::cycles(std::optional<session_id> session,
                                               std::size_t effort) const {
    std::vector<deadlock_found> found;
    for (std::size_t i = 0; i < vertices_.size() && effort > 0; ++i) {
        const vertex& entry = vertices_[i];
        if (entry.holds || !entry.blocks_a_hold) continue;
        if (session && entry.session != *session) continue;
        if (auto cycle = search{*this, i}.run(effort)) found.push_back(std::move(*cycle));
    }
    return found;
}

}  // namespace rowlock::protocol
