#include "sql/in_transaction.hpp"
#include "transaction/rows/row_locking.hpp"
#include <rowlock/error.hpp>
#include <rowlock/transaction.hpp>

namespace rowlock {

std::optional<table_row> lock_row(sql::connection& db, std::string_view table,
                                  const key_columns& columns, const row_key& values,
                                  const lock_row_options& options) {
    using namespace std::chrono_literals;
    if (options.statement_timeout <= 0ms || options.statement_timeout > 1min ||
        options.index_cache_ttl < 0ms) {
        throw error{errc::invalid_options,
                    "lock_row: statement_timeout must be positive and at most a minute, "
                    "index_cache_ttl not negative"};
    }
    detail::require_usable(options.wait, db.speaks());
    const auto until = std::chrono::steady_clock::now() + options.statement_timeout;
    sql::require_transaction(db, "lock_row", until);
    detail::refuse_cluster(db, options.accept_double_grants_in_cluster, until);
    const auto wait = options.wait.how() == row_wait::kind::bounded ? options.wait.limit() : 0ms;
    return detail::lock_one(db, detail::row_keys::of(db),
                            {.table = table,
                             .columns = columns,
                             .values = values,
                             .read = options.columns,
                             .wait = options.wait,
                             .statement_timeout = options.statement_timeout,
                             .index_cache_ttl = options.index_cache_ttl,
                             .last = until + wait + options.statement_timeout,
                             .borrowed = true});
}

}  // namespace rowlock
