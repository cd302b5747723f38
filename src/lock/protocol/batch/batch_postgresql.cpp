#include "lock/protocol/batch/batch_dialects.hpp"
#include "lock/protocol/hold/request_arrays.hpp"
#include "sql/array_text.hpp"
#include "sql/run_statement.hpp"

#include <algorithm>
#include <string>

namespace rowlock::protocol {
namespace {

/// Those of several names.
struct named_requests : request_arrays {
    explicit named_requests(std::span<const grant_request> requests) : request_arrays{requests} {
        for (const auto& each : requests) names.add(each.name);
    }
    sql::array_text names{};
};

std::optional<std::size_t> place_of(std::span<const grant_request> requests, grant_id grant_id) {
    const auto found = std::ranges::find(requests, grant_id, &grant_request::grant_id);
    if (found == requests.end()) return std::nullopt;
    return static_cast<std::size_t>(found - requests.begin());
}

/// Each operation is one statement. Waits, when it releases, for a row that a fenced transaction
/// has locked.
class postgresql_batch_protocol final : public common_batch_protocol {
public:
    explicit postgresql_batch_protocol(const sql::statement_set& statements)
        : common_batch_protocol{statements},
          acquire_all_{statements("acquire_all")},
          reacquire_all_{statements("reacquire_all")},
          release_all_{statements("release_all")},
          probe_held_{statements("probe_held")},
          probe_all_{statements("probe_all")} {}

    [[nodiscard]] bool reacquires_apart() const noexcept override { return true; }

    [[nodiscard]] std::vector<std::optional<std::int64_t>> acquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        sql::deadline until) const override {
        std::vector<std::optional<std::int64_t>> tokens(requests.size());
        if (requests.empty()) return tokens;
        named_requests all{requests};
        const auto rows =
            run(db, acquire_all_, until, requests.front().session, all.names.close(),
                all.ids.close(), all.threads.close(), all.notes.close(), all.deadlines.close());
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (const auto at = place_of(requests, rows.integer<grant_id>(row, 0))) {
                tokens[*at] = rows.integer(row, 1);
            }
        }
        return tokens;
    }

    [[nodiscard]] std::vector<std::optional<std::int64_t>> reacquire_all(
        sql::connection& db, std::span<const grant_request> requests,
        std::span<const std::int64_t> known, sql::deadline until) const override {
        std::vector<std::optional<std::int64_t>> tokens(requests.size());
        if (requests.empty()) return tokens;
        named_requests all{requests};
        sql::array_text freed_with;
        for (const auto token : known) freed_with.add(token);
        const auto rows = run(db, reacquire_all_, until, requests.front().session,
                              all.names.close(), freed_with.close(), all.ids.close(),
                              all.threads.close(), all.notes.close(), all.deadlines.close());
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            if (const auto at = place_of(requests, rows.integer<grant_id>(row, 0))) {
                tokens[*at] = known[*at] + 1;
            }
        }
        return tokens;
    }

    [[nodiscard]] std::vector<bool> release_all(sql::connection& db, session_id session,
                                                std::span<const granted_name> grants,
                                                sql::deadline until) const override {
        std::vector<bool> freed(grants.size());
        if (grants.empty()) return freed;
        sql::array_text names;
        sql::array_text ids;
        for (const auto& each : grants) {
            names.add(each.name);
            ids.add(each.grant_id);
        }
        const auto rows = run(db, release_all_, until, session, names.close(), ids.close(),
                              db.keeps_session_state() ? 1 : 0);
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const auto found =
                std::ranges::find(grants, rows.integer<grant_id>(row, 0), &granted_name::grant_id);
            if (found != grants.end())
                freed[static_cast<std::size_t>(found - grants.begin())] = true;
        }
        return freed;
    }

    [[nodiscard]] std::vector<bool> held(sql::connection& db,
                                         std::span<const std::string_view> names,
                                         sql::deadline until) const override {
        std::vector<bool> found(names.size());
        if (names.empty()) return found;
        if (names.size() == 1) {
            found[0] = !run(db, probe_held_, until, names[0]).empty();
            return found;
        }
        sql::array_text all;
        for (const auto& each : names) all.add(each);
        const auto rows = run(db, probe_all_, until, all.close());
        for (std::size_t row = 0; row < rows.rows(); ++row) {
            const auto name = std::ranges::find(names, rows.text(row, 0));
            if (name != names.end()) found[static_cast<std::size_t>(name - names.begin())] = true;
        }
        return found;
    }

private:
    const sql::statement acquire_all_, reacquire_all_, release_all_, probe_held_, probe_all_;
};

}  // namespace

std::unique_ptr<const batch_protocol> make_postgresql_batches(
    const sql::statement_set& statements) {
    return std::make_unique<const postgresql_batch_protocol>(statements);
}

}  // namespace rowlock::protocol
