/* What Pannier needs of DPDK beyond its exported functions: inline functions, and steps that use large structs. */
#ifndef PANNIER_SHIM_H
#define PANNIER_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* The processor that this thread runs on; negative where the system does not say. */
int pannier_processor(void);

/* The error number of this thread's last DPDK call that failed. */
int pannier_errno(void);

/* From the first call on, log lines come here. From now until `pannier_log_first` none is printed. */
void pannier_log_keep(void);

/* Copies the first line logged since `pannier_log_keep`, ended by a zero, into `size` bytes (at least one); an empty
 * line where there was none. Later lines are printed again. */
void pannier_log_first(char *line, size_t size);

/* Configures and starts a port with one queue each way, offloads off but for chains of mbufs, and lets it take frames
 * for any address. `chains` tells whether frames to send may be chains. Returns 0 or a negative error number. */
int pannier_start(uint16_t port, struct rte_mempool *pool, uint16_t descriptors, bool *chains);

/* Bytes in one piece. */
struct pannier_bytes {
    const uint8_t *bytes;
    /* How many there are. */
    uint32_t length;
    /* Of how many more pieces the frame consists. */
    uint32_t more;
};

/* rte_eth_rx_burst on queue 0. `pieces` gets the first piece of each frame, on its way into the cache. */
uint16_t pannier_rx_burst(uint16_t port, struct rte_mbuf **mbufs, struct pannier_bytes *pieces, uint16_t most);

/* The mbuf behind `mbuf` in its chain and its bytes; NULL behind the last. */
struct rte_mbuf *pannier_next(const struct rte_mbuf *mbuf, struct pannier_bytes *piece);

/* Copies frames into fresh mbufs, in chains where one is too short. Returns how many the pool had room for. */
uint16_t pannier_fill(struct rte_mempool *pool, const struct pannier_bytes *frames, struct rte_mbuf **mbufs,
                      uint16_t count);

/* rte_eth_tx_burst on queue 0. */
uint16_t pannier_tx_burst(uint16_t port, struct rte_mbuf **mbufs, uint16_t count);

#endif
