#include "strategy/wait_graph.hpp"

#include "utf8.hpp"

#include <algorithm>

namespace rowlock::strategy {
namespace {

/// Longer circles are left to the time limits of those in them.
constexpr std::size_t longest_circle = 64;
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
    vertices_.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        vertices_.push_back({.name = std::string{rows.text(row, 0)},
                             .ticket = rows.maybe_integer(row, 1).value_or(0),
                             .grant_id = rows.maybe_integer(row, 2).value_or(0),
                             .session = rows.integer(row, 3),
                             .thread = std::string{rows.text(row, 4)},
                             .who = describe(rows, row)});
    }
    // Holders first, then the queue: what a place waits for stands before it.
    std::sort(vertices_.begin(), vertices_.end(), [](const vertex& a, const vertex& b) {
        return a.name != b.name ? a.name < b.name : a.ticket < b.ticket;
    });
}

/// Goes from one place to whatever it waits for, through older tickets only. Each place once: what
/// leads to no circle from there never will.
class wait_graph::search {
public:
    search(const std::vector<vertex>& vertices, const vertex& start)
        : vertices_{vertices}, start_{start}, seen_(vertices.size(), false) {}

    /// The way round, or nothing.
    std::string run() {
        if (!comes_round(start_)) return {};
        std::string text;
        for (const auto& [place, obstacle] : way_) {
            text.append(place->name);
            text.append(obstacle->ticket == 0 ? " (held by " : " (first waited for by ");
            text.append(obstacle->who).append(") -> ");
        }
        return text.append(start_.name);
    }

private:
    bool comes_round(const vertex& place) {
        if (way_.size() == longest_circle) return false;
        const auto first = std::lower_bound(
            vertices_.begin(), vertices_.end(), place.name,
            [](const vertex& it, const std::string& name) { return it.name < name; });
        for (auto it = first; it != vertices_.end() && it->name == place.name; ++it) {
            if (it->ticket >= place.ticket) break;
            if (it->same_party(place)) continue;
            way_.emplace_back(&place, &*it);
            if (it->same_party(start_) || goes_on(*it)) return true;
            way_.pop_back();
        }
        return false;
    }

    /// Through what the party of `obstacle` waits for itself.
    bool goes_on(const vertex& obstacle) {
        for (std::size_t i = 0; i < vertices_.size(); ++i) {
            const vertex& next = vertices_[i];
            if (seen_[i] || next.ticket == 0 || next.ticket >= start_.ticket ||
                !next.same_party(obstacle)) {
                continue;
            }
            seen_[i] = true;
            if (comes_round(next)) return true;
        }
        return false;
    }

    const std::vector<vertex>& vertices_;
    const vertex& start_;
    std::vector<bool> seen_;
    std::vector<std::pair<const vertex*, const vertex*>> way_;
};

std::vector<deadlock_found> wait_graph::circles(std::int64_t session) const {
    std::vector<deadlock_found> found;
    for (const vertex& place : vertices_) {
        if (place.ticket == 0 || place.session != session) continue;
        std::string way = search{vertices_, place}.run();
        if (!way.empty()) found.push_back({place.grant_id, std::move(way)});
    }
    return found;
}

}  // namespace rowlock::strategy
