#pragma once

#include <cstdint>
#include <istream>

namespace support {

/// Reads an id from a stream, as to_string() wrote it: `in >> read_id(one.session)`.
template <typename Id>
class id_reader {
public:
    explicit id_reader(Id& id) : id_{id} {}

    friend std::istream& operator>>(std::istream& in, id_reader to) {
        std::int64_t number = 0;
        if (in >> number) to.id_ = Id{number};
        return in;
    }

private:
    Id& id_;
};

template <typename Id>
id_reader<Id> read_id(Id& id) {
    return id_reader<Id>{id};
}

}  // namespace support
