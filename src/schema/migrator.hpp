#pragma once

#include "schema/catalog.hpp"
#include <rowlock/error.hpp>
#include <rowlock/migrations.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rowlock::schema {

/// Moves the schema on one connection from version to version of a catalog. Only one migrator works
/// on the same tables at a time:
/// - PostgreSQL: all in one transaction, under an advisory lock of that transaction;
/// - SQLite: all in one transaction, which has the write lock;
/// - MySQL: statement by statement, under GET_LOCK, since DDL commits there. Every statement can be
///   repeated and a migration is recorded when it is complete, so that the next run completes an
///   interrupted one. On Galera two nodes may grant the lock at once; then both do the same work,
///   which is harmless: at worst one of them fails and finds it done when it tries again.
class migrator {
public:
    /// The arguments must outlive the migrator, except for `tables`.
    /// @throws error errc::invalid_options
    migrator(sql::connection& db, const catalog& known, sql::table_names tables,
             const migration_options& options);

    /// The version of the database, 0 without tables; that of a later library, if this one can work
    /// with it. Changes nothing.
    /// @throws error errc::schema_outdated if it is too new for the catalog, or differs from it
    [[nodiscard]] int version();

    /// @param target 0 to known.latest(); nullopt: that, or a later one that is there
    /// @return the versions applied or reverted. If the database is at the target already: empty,
    /// nothing locked and nothing written.
    /// @throws error errc::schema_outdated to revert what a later library has applied
    std::vector<int> move_to(std::optional<int> target);

    [[nodiscard]] history_recording history();
    /// @param wanted absent removes what was recorded
    void switch_history(history_recording wanted);

private:
    sql::result query(std::string_view sql);
    [[nodiscard]] std::string qualified(std::string_view sql) const;
    [[nodiscard]] std::string table(std::string_view name) const;
    [[nodiscard]] bool has_record();
    [[nodiscard]] std::vector<recorded_migration> read_record();
    void run_script(const migration& step, std::string_view script);
    void run_step(std::string_view statement);
    [[nodiscard]] std::string question_about_history() const;
    void run_history(std::string_view name);

    /// Runs `work` while no other migrator works.
    void under_lock(const std::function<void()>& work);
    void in_transaction(const std::function<void()>& work);
    void in_steps(const std::function<void()>& work);
    void move_under_lock(std::optional<int> wanted);
    [[nodiscard]] bool is_at(std::optional<int> target, int version) const;
    void require_known(int version) const;
    void record_again() noexcept;
    void switch_under_lock(history_recording wanted);
    void move_up(int from, int target);
    void move_down(int from, int target);

    [[nodiscard]] std::int64_t postgresql_lock_key();
    void begin_postgresql(std::int64_t key);
    /// An SQL expression for the name of the schema where the tables are, or will be.
    [[nodiscard]] std::string postgresql_schema() const;
    void begin_sqlite();
    void make_postgresql_schema();
    void take_mysql_lock();
    void require_mysql_lock();

    sql::connection& db_;
    const catalog& known_;
    const sql::table_names tables_;
    const migration_options& options_;
    sql::dialect speaks_;
    std::vector<int> moved_;  ///< versions, so far
    bool recorded_ = false;   ///< there was a history at the start
    bool locked_ = false;     ///< no other migrator works
    std::string mysql_lock_;  ///< the lock's name
};

/// migrations/<dialect>/history/<name>.sql
[[nodiscard]] std::string_view history_file(sql::dialect which, std::string_view name);

/// The rows of the record table. One round trip.
/// @throws error errc::schema_outdated if there is none
[[nodiscard]] std::vector<recorded_migration> read_record(sql::connection& db,
                                                          const sql::table_names& tables,
                                                          sql::deadline until);

/// The statement that records a migration as applied, in our spelling of table names.
[[nodiscard]] std::string record_statement(const migration& step, sql::dialect which);

/// The same error with more text.
[[nodiscard]] error explained(const error& failure, std::string_view before,
                              std::string_view after = {});

/// @throws error errc::invalid_options
void validate(const migration_options& options);

}  // namespace rowlock::schema
