/* SPDX-License-Identifier: Apache-2.0 */

/* The rights that a server and a node need, as commands of Redis. */

#include "cluster/bus_redis.h"

void bus_redis_rights(struct buf *out, const char *cluster, enum bus_side side) {
    if (side == BUS_SERVER) {
        buf_printf(out,
                   "ACL SETUSER server on >SECRET resetchannels ~{quern:%s}:* +auth +ping +info "
                   "+time +get +set +del +rename +pexpire +smembers +srem +xadd +xread +xdel "
                   "+xtrim",
                   cluster);
        return;
    }
    buf_printf(out,
               "ACL SETUSER node on >SECRET resetchannels +auth +ping +time "
               "(%%R~{quern:%s}:gen +get) (%%R~{quern:%s}:w:* +xread) "
               "(%%W~{quern:%s}:r:* +xadd) (%%W~{quern:%s}:node:* +set +del +pexpire) "
               "(%%W~{quern:%s}:nodes +sadd +srem)",
               cluster, cluster, cluster, cluster, cluster);
}
