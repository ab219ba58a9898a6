"""A fit of Keras on whatever backend is set."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
x, y = np.random.rand(96, 20).astype("float32"), np.random.randint(0, 4, 96)
model = keras.Sequential(
    [
        keras.Input((20,)),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(4, activation="softmax"),
    ]
)
model.compile(
    optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="sparse_categorical_crossentropy"
)


class Losses(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print(float(logs["loss"]))


model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[Losses()])
print("evaluated", float(model.evaluate(x, y, verbose=0)))
