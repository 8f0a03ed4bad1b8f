import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's own REST servlet over any Iceberg catalog, on one address. Iceberg's RESTCatalogServer does the same but listens on
 * all addresses, which a test must not do.
 *
 * <p>Address and port are the arguments; the catalog's properties, one {@code name=value} a line, come in the environment, because some
 * are secrets and a command line can be read by anyone.
 */
public final class BoundRestCatalog {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    System.getenv("REST_CATALOG_PROPERTIES").lines().forEach(line -> {
      String[] pair = line.split("=", 2);
      properties.put(pair[0], pair[1]);
    });
    var catalog = CatalogUtil.buildIcebergCatalog("tests", properties, new Configuration());
    var servlets = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    servlets.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    var address = new InetSocketAddress(InetAddress.getByName(arguments[0]), Integer.parseInt(arguments[1]));
    var server = new Server(address);
    server.setHandler(servlets);
    server.start();
    server.join();
  }
}
