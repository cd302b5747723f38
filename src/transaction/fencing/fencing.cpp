#include "transaction/fencing/fencing.hpp"

#include "transaction/fencing/fencing_dialects.hpp"

namespace rowlock::detail {

std::unique_ptr<const fencing> make_fencing(const sql::statement_set& statements) {
    switch (statements.speaks()) {
        case sql::dialect::postgresql:
            return make_postgresql_fencing(statements);
        case sql::dialect::mysql:
            return make_mysql_fencing(statements);
        case sql::dialect::sqlite:
            break;
    }
    return make_sqlite_fencing(statements);
}

}  // namespace rowlock::detail
