#include "lock/protocol/multi/multi_protocol.hpp"

#include "lock/protocol/multi/multi_dialects.hpp"

namespace rowlock::protocol {

std::unique_ptr<const multi_protocol> make_multi_protocol(const sql::statement_set& statements) {
    return statements.speaks() == sql::dialect::postgresql ? make_postgresql_multi(statements)
                                                           : make_two_step_multi(statements);
}

}  // namespace rowlock::protocol
