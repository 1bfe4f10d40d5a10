/* config_write.h - config.json and generation_config.json of written checkpoints. */
#ifndef CALLA_MODEL_CONFIG_WRITE_H
#define CALLA_MODEL_CONFIG_WRITE_H

#include "base/buf.h"
#include "model/shape.h"
#include "model/writer.h"

/* The keys of the official config.json, with the shape's numbers; quantised adds the quantization block.
 * eos_ids: end of turn, end of text. */
int calla_write_config(struct calla_writer *w, const struct calla_shape *shape, int n_layers, bool quantised,
                       const int32_t eos_ids[2], struct calla_err *err);
int calla_write_generation(struct calla_writer *w, const int32_t eos_ids[2], struct calla_err *err);

/* The value of "quantization": 4 bits, group 64, routers 8 bits. */
void calla_quantization_json(struct calla_buf *out, int n_layers, bool mtp);

#endif
