#include "sql/database_traits.hpp"

namespace rowlock::sql {
namespace {

constexpr database_traits postgresql{.one_writer = false,
                                     .has_server = true,
                                     .notifies = true,
                                     .may_be_pooled = true,
                                     .may_be_clustered = false,
                                     .limits_lock_waits = true,
                                     .testable_clock = false,
                                     .secrets_prove_writers = true,
                                     .returns_rows = true,
                                     .counts_changes_only = false,
                                     .procedures_may_commit = false,
                                     .compares_as_floating_point = false};

constexpr database_traits mysql{.one_writer = false,
                                .has_server = true,
                                .notifies = false,
                                .may_be_pooled = false,
                                .may_be_clustered = true,
                                .limits_lock_waits = true,
                                .testable_clock = false,
                                .secrets_prove_writers = true,
                                .returns_rows = false,
                                .counts_changes_only = true,
                                .procedures_may_commit = true,
                                .compares_as_floating_point = true};

constexpr database_traits sqlite{.one_writer = true,
                                 .has_server = false,
                                 .notifies = false,
                                 .may_be_pooled = false,
                                 .may_be_clustered = false,
                                 .limits_lock_waits = false,
                                 .testable_clock = true,
                                 .secrets_prove_writers = false,
                                 .returns_rows = true,
                                 .counts_changes_only = false,
                                 .procedures_may_commit = false,
                                 .compares_as_floating_point = false};

}  // namespace

const database_traits& traits_of(dialect which) noexcept {
    switch (which) {
        case dialect::postgresql:
            return postgresql;
        case dialect::mysql:
            return mysql;
        case dialect::sqlite:
            break;
    }
    return sqlite;
}

}  // namespace rowlock::sql
