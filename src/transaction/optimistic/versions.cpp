#include "base/page.hpp"
#include "sql/database_traits.hpp"
#include "sql/run_statement.hpp"
#include "sql/statements.hpp"
#include "sql/table_names.hpp"
#include <rowlock/error.hpp>
#include <rowlock/optimistic.hpp>

#include <array>
#include <limits>
#include <mutex>

namespace rowlock {
namespace {

struct version_statements {
    version_statements(sql::dialect speaks, const sql::statement_options& options)
        : read{sql::load_statement(speaks, "version_read", options)},
          create{sql::load_statement(speaks, "version_create", options)},
          update{sql::load_statement(speaks, "version_update", options)},
          erase{sql::load_statement(speaks, "version_erase", options)},
          restore{sql::load_statement(speaks, "version_restore", options)},
          list{sql::load_statement(speaks, "version_list", options)} {}

    sql::statement read, create, update, erase, restore, list;
};

}  // namespace

class versions::state {
public:
    state(sql::table_names tables, versions_options options)
        : tables_{std::move(tables)}, options_{options} {
        if (options_.statement_timeout <= std::chrono::milliseconds{0} ||
            options_.statement_timeout > std::chrono::minutes{1}) {
            throw error{errc::invalid_options,
                        "statement_timeout must be positive and at most one minute"};
        }
        // The database is known only at the first call; only PostgreSQL has schemas.
        sql::validate_names(sql::dialect::postgresql, tables_);
    }

    const version_statements& on(const sql::connection& db) {
        const std::lock_guard lock{mutex_};
        auto& place = statements_.at(static_cast<std::size_t>(db.speaks()));
        if (!place) {
            place = std::make_unique<const version_statements>(
                db.speaks(), sql::statement_options{.tables = tables_});
        }
        return *place;
    }

    template <typename... Values>
    sql::result run(sql::connection& db, const sql::statement& what, const Values&... values) {
        const auto until = std::chrono::steady_clock::now() + options_.statement_timeout;
        return sql::run(db, what, until, values...);
    }

    /// Runs one of the three compare-and-sets, and finds out why if no row matched.
    update_result change(sql::connection& db, const sql::statement& how, const lock_name& resource,
                         const row_version& seen, bool on_erased) {
        const std::int64_t number = seen.number();
        if (number == std::numeric_limits<std::int64_t>::max()) {
            throw error{errc::database_error, "the version of this resource cannot grow any more"};
        }
        // The version is the key's own counter: a row that matched has number + 1 now.
        const sql::result rows = run(db, how, resource.str(), number);
        if (rows.affected() > 0 || !rows.empty()) {
            return update_result::done(row_version{number + 1});
        }
        const sql::result now = run(db, on(db).read, resource.str());
        const bool there = !now.empty() && (now.integer(0, 1) != 0) == on_erased;
        return there ? update_result::conflict() : update_result::gone();
    }

private:
    const sql::table_names tables_;
    const versions_options options_;
    std::mutex mutex_;
    std::array<std::unique_ptr<const version_statements>, 3> statements_;
};

versions::versions(sql::table_names tables, versions_options options)
    : state_{std::make_shared<state>(std::move(tables), options)} {}

std::optional<row_version> versions::read(sql::connection& db, const lock_name& resource,
                                          deleted_rows deleted) const {
    const sql::result rows = state_->run(db, state_->on(db).read, resource.str());
    if (rows.empty()) return std::nullopt;
    if (rows.integer(0, 1) != 0 && deleted == deleted_rows::hidden) return std::nullopt;
    return row_version{rows.integer(0, 0)};
}

std::optional<row_version> versions::create(sql::connection& db, const lock_name& resource) const {
    const version_statements& texts = state_->on(db);
    if (!sql::traits_of(db.speaks()).returns_rows) {
        if (!state_->run(db, texts.read, resource.str()).empty()) return std::nullopt;
        if (state_->run(db, texts.create, resource.str()).affected() == 0) return std::nullopt;
        return row_version{1};
    }
    if (state_->run(db, texts.create, resource.str()).empty()) return std::nullopt;
    return row_version{1};
}

update_result versions::update(sql::connection& db, const lock_name& resource,
                               const row_version& seen) const {
    return state_->change(db, state_->on(db).update, resource, seen, false);
}

update_result versions::erase(sql::connection& db, const lock_name& resource,
                              const row_version& seen) const {
    return state_->change(db, state_->on(db).erase, resource, seen, false);
}

update_result versions::restore(sql::connection& db, const lock_name& resource,
                                const row_version& seen) const {
    return state_->change(db, state_->on(db).restore, resource, seen, true);
}

std::vector<versioned_resource> versions::list(sql::connection& db, std::string_view prefix,
                                               const page& which) const {
    detail::validate(prefix, which);
    // U+10FFFF, which no name contains, sorts behind every continuation of the prefix.
    const std::string end = std::string{prefix} + "\xF4\x8F\xBF\xBF";
    const sql::result rows =
        state_->run(db, state_->on(db).list, prefix, end, which.after, which.limit);
    std::vector<versioned_resource> resources;
    resources.reserve(rows.rows());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        resources.push_back({std::string{rows.text(row, 0)}, row_version{rows.integer(row, 1)},
                             rows.integer(row, 2) != 0,
                             std::chrono::microseconds{rows.integer(row, 3)}});
    }
    return resources;
}

}  // namespace rowlock
