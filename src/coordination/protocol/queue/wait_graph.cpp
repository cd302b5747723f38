#include "coordination/protocol/queue/wait_graph.hpp"

#include "base/utf8.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
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
    std::map<std::pair<session_id, std::string>, std::size_t> parties;
    const auto party_of = [&](session_id session, std::string_view thread) {
        return parties.try_emplace({session, std::string{thread}}, parties.size()).first->second;
    };
    vertices_.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        vertices_.push_back({.name = std::string{rows.text(row, 0)},
                             .ticket = rows.maybe_integer<ticket_no>(row, 1).value_or(ticket_no{}),
                             .grant_id = rows.maybe_integer<grant_id>(row, 2).value_or(grant_id{}),
                             .session = rows.integer<session_id>(row, 3),
                             .party = party_of(rows.integer<session_id>(row, 3), rows.text(row, 4)),
                             .who = describe(rows, row)});
    }
    entries_of_.resize(parties.size());
    // Holders first, then the queue: an entry waits for what is sorted before it.
    std::sort(vertices_.begin(), vertices_.end(), [](const vertex& a, const vertex& b) {
        return a.name != b.name ? a.name < b.name : a.ticket < b.ticket;
    });
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
        if (vertices_[i].ticket != ticket_no{}) entries_of_[vertices_[i].party].push_back(i);
    }
}

/// Walks from one entry to what it waits for, through older tickets only, shortest paths first.
/// Visits each entry and each obstacle once: one that leads to no cycle never will.
///
/// Entries of one party at one name do not wait for each other, nor for what the party holds: a
/// lease is bound to no thread. So no path leads from a name to itself within a party.
class wait_graph::search {
public:
    search(const wait_graph& graph, std::size_t start)
        : graph_{graph},
          start_{graph.vertices_[start]},
          met_(graph.vertices_.size(), false),
          from_(graph.vertices_.size()) {
        from_[start] = step{start, start};
        open_.push(start);
    }

    /// Returns the cycle, or nullopt.
    std::optional<deadlock_found> run() {
        for (; !open_.empty(); open_.pop()) {
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
            if (it->ticket >= entry.ticket) break;
            if (it->party == entry.party) continue;
            const auto obstacle = static_cast<std::size_t>(it - graph_.vertices_.begin());
            if (it->party == start_.party) {
                if (it->name != start_.name) return step{from, obstacle};
            } else if (!met_[obstacle]) {
                met_[obstacle] = true;
                go_on({from, obstacle});
            }
        }
        return std::nullopt;
    }

    /// Continues with what the party of the obstacle waits for itself.
    void go_on(const step& way) {
        const vertex& obstacle = graph_.vertices_[way.obstacle];
        for (const std::size_t next : graph_.entries_of_[obstacle.party]) {
            const vertex& entry = graph_.vertices_[next];
            if (from_[next] || entry.ticket >= start_.ticket || entry.name == obstacle.name)
                continue;
            from_[next] = way;
            open_.push(next);
        }
    }

    [[nodiscard]] std::vector<step> way_to(step last) const {
        std::vector<step> way{last};
        while (&graph_.vertices_[way.back().entry] != &start_) {
            way.push_back(*from_[way.back().entry]);
        }
        std::ranges::reverse(way);
        return way;
    }

    [[nodiscard]] deadlock_found tell(const std::vector<step>& way) const {
        deadlock_found found{
            .grant_id = start_.grant_id, .description = describe(way), .tickets = {}};
        for (const step& each : way) found.tickets.push_back(graph_.vertices_[each.entry].ticket);
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
            text.append(obstacle.ticket == ticket_no{} ? " (held by " : " (first waited for by ");
            text.append(obstacle.who).append(") -> ");
        }
        return text.append(start_.name);
    }

    const wait_graph& graph_;
    const vertex& start_;
    std::queue<std::size_t>
        open_;               ///< reached and not expanded yet, in the order of their distance
    std::vector<bool> met_;  ///< obstacles that were expanded
    std::vector<std::optional<step>> from_;  ///< how an entry was reached
};

std::vector<deadlock_found> wait_graph::cycles(session_id session) const {
    std::vector<deadlock_found> found;
    for (std::size_t i = 0; i < vertices_.size(); ++i) {
        const vertex& entry = vertices_[i];
        if (entry.ticket == ticket_no{} || entry.session != session) continue;
        if (auto cycle = search{*this, i}.run()) found.push_back(std::move(*cycle));
    }
    return found;
}

}  // namespace rowlock::protocol
