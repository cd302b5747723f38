#include "coordination/protocol/multi/multi_two_step.hpp"
#include "coordination/protocol/semaphore/semaphore_protocol.hpp"
#include "sql/run_all.hpp"
#include "sql/run_statement.hpp"
#include "sql/value_list.hpp"
#include <rowlock/error.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::protocol {
namespace {

using outcome = attempt::outcome;
using sql::value;

class two_step_multi_modes final : public multi_protocol {
public:
    two_step_multi_modes(const sql::statement_set& statements,
                         std::unique_ptr<const semaphore_protocol> counters)
        : counters_{std::move(counters)},
          make_row_{statements("restore_lease")},
          look_{statements("multi_look_permits")},
          take_{statements("take_permits")},
          use_{statements("use_permits")},
          insert_{statements("insert_permit")},
          delete_ticket_{statements("delete_served_ticket")},
          enqueue_{statements} {}

    multi_attempt take(sql::connection& db, const multi_request& request,
                       sql::deadline until) const override {
        auto seen = look_at(db, request, until);
        if (seen.answer.what != outcome::session_dead && seen.found.size() < request.names.size()) {
            for (const auto& each : request.names) {
                if (std::ranges::find(seen.found, each.name) != seen.found.end()) continue;
                restore_row(db, make_row_, each.name, until);
            }
            seen = look_at(db, request, until);
        }
        if (seen.answer.what != outcome::granted) return std::move(seen.answer);
        if (!write(db, request, seen, until)) return {.what = outcome::contested};
        return read_tokens(db, request, until);
    }

    void enqueue(sql::connection& db, const multi_request& request,
                 sql::deadline until) const override {
        enqueue_.run(db, request, until);
    }

private:
    struct look {
        multi_attempt answer{};            ///< granted: all could be taken
        std::vector<std::string> found{};  ///< names that have a counter
        std::vector<ticket_no> tickets{};  ///< our entries, where each is the first of its queue
    };

    [[nodiscard]] look look_at(sql::connection& db, const multi_request& request,
                               sql::deadline until) const {
        std::array<value, 1 + sql::list_size> parameters{value{request.session}};
        sql::put_list(std::span<value>{parameters}, 1, request.names,
                      [](const granted_name& each) { return each.name; });
        const auto rows = db.execute(look_, parameters, until);
        look seen;
        seen.answer.what = outcome::granted;
        if (rows.integer(0, 0) == 0) {
            seen.answer.what = outcome::session_dead;
            return seen;
        }
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (rows.is_null(row, 1)) continue;
            const auto name = rows.text(row, 1);
            seen.found.emplace_back(name);
            if (rows.integer(row, 2) == 0) throw name_of_semaphore(name);
            const bool has_room = request.permits[place_of(request, name)] <= rows.integer(row, 3);
            if (!has_room) seen.answer.full.emplace_back(name);
            const auto first = rows.maybe_integer<rowlock::grant_id>(row, 5);
            if (!has_room || !is_our_turn(request, first)) seen.answer.what = outcome::held;
            if (request.queued && first) seen.tickets.push_back(rows.integer<ticket_no>(row, 4));
        }
        return seen;
    }

    /// The counters, then the entries, then the holds: as for one. Returns false, and changes
    /// nothing, if a counter has no room any more, an entry is gone, or the session has ended.
    [[nodiscard]] bool write(sql::connection& db, const multi_request& request, look& seen,
                             sql::deadline until) const {
        const auto kind = value{static_cast<int>(counter_kind::shared_mutex)};
        std::vector<std::vector<value>> all;
        std::vector<sql::step> steps;
        const std::size_t count = request.names.size();
        all.reserve(2 * count + seen.tickets.size());  // the steps refer to them
        const auto add = [&](const sql::statement& what, std::vector<value> parameters) {
            all.push_back(std::move(parameters));
            steps.push_back({what, all.back()});
        };
        for (std::size_t i = 0; i < count; ++i) {
            const auto& name = request.names[i].name;
            if (request.queued) {
                add(use_, {value{name}, value{request.permits[i]}});
            } else {
                add(take_, {value{name}, value{request.session}, value{request.permits[i]}, kind,
                            value{}, value{1}});
            }
        }
        std::ranges::sort(seen.tickets);
        for (const auto each : seen.tickets) add(delete_ticket_, {value{each}});
        for (std::size_t i = 0; i < count; ++i) {
            const auto& one = request.names[i];
            add(insert_,
                {value{one.name}, value{request.session}, value{one.grant_id},
                 value{request.permits[i]}, sql::text_or_null(request.thread),
                 sql::text_or_null(request.note), value{request.deadline_us}, value{}, value{0}});
        }
        return sql::run_all(db, steps, until);
    }

    /// Afterwards: between the look and the update other clients may have raised a token.
    [[nodiscard]] multi_attempt read_tokens(sql::connection& db, const multi_request& request,
                                            sql::deadline until) const {
        multi_attempt made{.what = outcome::granted};
        try {
            const auto held = counters_->permits_of(db, request.session, until);
            for (const auto& each : request.names) {
                const auto row = std::ranges::find(held, each.grant_id, &session_lease::grant_id);
                // Its own deadline was over, or an operator has ended it: the others go back.
                if (row == held.end()) throw error{errc::lock_lost, "one of them is over already"};
                made.tokens.push_back(row->token);
            }
        } catch (const error& failure) {
            throw error{
                errc::outcome_unknown,
                std::string{"committed, but the grants could not be read: "} + failure.what()};
        }
        return made;
    }

    const std::unique_ptr<const semaphore_protocol> counters_;
    const sql::statement make_row_, look_, take_, use_, insert_, delete_ticket_;
    const multi_enqueue enqueue_;
};

}  // namespace

std::unique_ptr<const multi_protocol> make_two_step_multi_modes(
    const sql::statement_set& statements) {
    return std::make_unique<const two_step_multi_modes>(statements,
                                                        make_semaphore_protocol(statements));
}

}  // namespace rowlock::protocol
